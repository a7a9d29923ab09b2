"""What bodies of the routes under /bench have in common."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def without_nul(text: str) -> str:
    """PostgreSQL's text holds none."""
    if "\0" in text:
        raise ValueError("must not hold NUL characters")
    return text


MOST_FIELDS = 100

Text = Annotated[str, Field(max_length=10_000), AfterValidator(without_nul)]
Judge = Annotated[str, Field(max_length=200), AfterValidator(without_nul)]
Id = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(without_nul)]


class Given(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        """A body of a million fields is refused for that: an error for each would take seconds."""
        if isinstance(given, dict) and len(given) > MOST_FIELDS:
            raise ValueError(f"has {len(given)} fields, of which at most {MOST_FIELDS} can be meant")
        return given
