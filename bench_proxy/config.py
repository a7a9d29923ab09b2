"""The `bench:` block: its types and limits, where it is read from, and what is wrong with it.

The only module that reads bench-proxy's own settings from the environment. A `Config` is frozen; a reload makes a new
one.
"""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from bench_proxy.errors import ConfigError

ReplyMode = Literal["all", "merged", "choices", "route"]
StreamMode = Literal["seats", "live"]
Role = Literal["general", "code", "light", "vision"]

REPLY_MODES: tuple[ReplyMode, ...] = get_args(ReplyMode)
BUILT_IN_SHAPES: Mapping[str, tuple[Role, ...]] = {
    "general": ("general",),
    "design": ("general",),
    "prose": ("general",),
    "review": ("general", "code"),
    "code": ("general", "code"),
    "enumeration": ("general", "code", "light"),
    "quick": ("general", "light"),
    "vision": ("general", "light", "vision"),
}
COLLECTION_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
TAG = r"^[a-z0-9][a-z0-9-]{0,23}$"
SHAPE_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
NAMED = (
    ("collections", COLLECTION_NAME, "a collection's name is 1 to 64 of a-z, 0-9 and -, not starting with -"),
    ("shapes", SHAPE_NAME, "a shape's name is 1 to 32 of a-z, 0-9 and -, starting with a letter"),
)
MODEL_PREFIX = "bench/"
OTHERS_NAMES = ("replicate", "clarifai")
"""LiteLLM gives a model with one of these words in its name to that provider, whatever stands in front of it."""

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CollectionSettings(Section):
    """One collection: which models sit, and how their answers come back."""

    members: tuple[str, ...] = Field(min_length=1)
    description: str = Field("", max_length=300)
    tags: tuple[Annotated[str, Field(pattern=TAG)], ...] = Field((), max_length=8)
    shape: str = ""
    reply: ReplyMode = "all"
    merger: str = ""
    explorers: int | None = Field(None, ge=0)
    stream: StreamMode = "seats"
    quorum: int = Field(0, ge=0)
    deadline: float = Field(0, ge=0, le=86_400, allow_inf_nan=False)
    on_disconnect: Literal["finish", "cancel"] = "finish"


class Limits(Section):
    max_calls: int = Field(5, ge=1, le=64)
    max_explorers: int = Field(2, ge=0, le=32)
    max_body_mb: float = Field(20, gt=0, le=1024, allow_inf_nan=False)
    concurrent_panels: int = Field(0, ge=0)

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 1024 * 1024)


class Timing(Section):
    """All in seconds."""

    seat_timeout: Seconds = 300
    explorer_grace: float = Field(15, ge=0, le=86_400, allow_inf_nan=False)
    keep_alive: Seconds = 10
    first_piece: Seconds = 90
    turn: Seconds = 600
    hold_status: Seconds = 15
    sticky_idle: Seconds = 3600


class ModelFacts(Section):
    """What an operator says of a model; it wins over everything else that is known."""

    role: Role = "general"
    family: str = ""
    tools: bool | None = None
    vision: bool | None = None
    context_window: int | None = Field(None, ge=512)
    max_output: int | None = Field(None, ge=1)
    paid_for: bool = False
    explore: bool = True
    retired: bool = False
    lane: Literal["auto", "router", "lean"] = "auto"


class Route(Section):
    explore_share: float = Field(0.25, ge=0, le=1)
    attempts: int = Field(3, ge=1, le=16)
    unknown_tools: Literal["skip", "try"] = "skip"
    shadow: float = Field(0, ge=0, le=1)


class LedgerSettings(Section):
    url: str = "sqlite:///bench.db"
    keep_days: int = Field(0, ge=0, le=36_500)
    content: Literal["full", "answers", "none"] = "full"

    @field_validator("url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        scheme = url.partition(":")[0].partition("+")[0]
        if scheme not in {"sqlite", "postgresql"}:
            raise ValueError("must start with sqlite:/// or postgresql://")
        return url


ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?")
HOST = re.compile(r"(?:(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::\d{1,5})?")
USUAL_PORTS = {"http": ":80", "https": ":443"}


class Access(Section):
    """Who may use what is served; hosts and origins are compared with what clients send, letter by letter."""

    require_key: bool = False
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    public_url: str = ""

    @field_validator("allowed_origins")
    @classmethod
    def _as_browsers_send_them(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            usual = USUAL_PORTS.get(origin.partition(":")[0], "none")
            if not ORIGIN.fullmatch(origin) or origin.endswith(usual):
                raise ValueError(
                    f'"{origin[:100]}" is no origin as browsers send it: a scheme and a host in small letters, a port'
                    " where it is not the usual one, and no path, as in https://app.example.com or http://localhost:3000"
                )
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _names(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST.fullmatch(host):
                raise ValueError(
                    f'"{host[:100]}" is no name of a host: write it in small letters, with a port if it is for one'
                    " alone, as in bench.internal, bench.internal:8080 or *.example.com"
                )
        return hosts


class Config(Section):
    """The whole `bench:` block."""

    collections: dict[str, CollectionSettings] = Field(default_factory=dict)
    limits: Limits = Limits()
    timing: Timing = Timing()
    models: dict[str, ModelFacts] = Field(default_factory=dict)
    shapes: dict[str, tuple[Role, ...]] = Field(default_factory=dict)
    decision_model: str = ""
    route: Route = Route()
    ledger: LedgerSettings = LedgerSettings()
    access: Access = Access()

    @property
    def all_shapes(self) -> Mapping[str, tuple[Role, ...]]:
        return {**BUILT_IN_SHAPES, **self.shapes}

    def explorers_of(self, name: str) -> int:
        """How many explorer seats a panel of this collection has, before its members are counted."""
        own = self.collections[name].explorers
        return self.limits.max_explorers if own is None else own


@dataclass(frozen=True, slots=True)
class Source:
    """Where the block was found: the file that holds it, and LiteLLM's own file, which lists the models and may
    include others.
    """

    litellm_file: Path
    block_file: Path
    included: tuple[Path, ...] = ()

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when one of the files does, a swapped symlink included. Blocking: call it in a thread."""
        looks = (file.stat() for file in (self.litellm_file, self.block_file, *self.included))
        return tuple((s.st_ino, s.st_mtime_ns, s.st_size) for s in looks)


def load(
    litellm_file: Path,
    *,
    override: Path | None = None,
    models: Collection[str] | None = None,
    panels: Collection[str] = (),
) -> tuple[Config, Source]:
    """Read and check the block.

    `override` is `BENCH_CONFIG`'s file. `models` are the names that LiteLLM serves now, `panels` those among them
    that are collections; without them they are read from the file, as they are before LiteLLM has started. Raises
    ConfigError with every fault.
    """
    found = _documents(litellm_file)
    documents = list(found.values())
    litellm = documents[0]
    if override is not None:
        block_file, block = override, _block_of(_read(override))
    else:
        block_file, block = _block_in(litellm, litellm_file)
    where = "" if block_file != litellm_file else "bench."
    known = models if models is not None else _model_names(documents)
    nested = {*panels, *panel_names(_model_list(documents), _aliases(documents))}
    return parse(block, str(block_file), where=where, models=known, panels=nested), Source(
        litellm_file, block_file, tuple(found)[1:]
    )


def read(
    config: Mapping[str, Any] | Path | str, *, models: Collection[str] | None = None, panels: Collection[str] = ()
) -> Config:
    """The block of a program that has no LiteLLM file: a mapping or a YAML file, bare or under `bench:`.

    Raises ConfigError with every fault.
    """
    source, document = "config", dict(config) if isinstance(config, Mapping) else _read(Path(config))
    if not isinstance(config, Mapping):
        source = str(config)
    where = "bench." if "bench" in document else ""
    if not where:
        block: object = document
    elif isinstance(config, Mapping):
        block = document["bench"]
    else:
        file, block = _block_in(document, Path(config))
        source, where = (source, where) if file == Path(config) else (str(file), "")
    return parse(block, source, where=where, models=models, panels=panels)


def parse(
    block: object,
    source: str,
    *,
    where: str = "bench.",
    models: Collection[str] | None = None,
    panels: Collection[str] = (),
) -> Config:
    """Turn the block into a `Config`; `models` None leaves model names unchecked. `panels` are names of LiteLLM's
    models, and patterns with `*`, that are collections themselves. Raises ConfigError.
    """
    if not isinstance(block, dict):
        raise ConfigError(source, [f"{where.rstrip('.') or 'file'}: must be a mapping, not {_kind(block)}"])
    faults = [f"{where}{fault}" for fault in [*_name_faults(block), *_misleading(block)]]
    config: Config | None = None
    try:
        config = Config.model_validate(block)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False)
        faults += [f"{where}{_fault(error)}" for error in errors]
        sound = _sound_part(block, [error["loc"] for error in errors])
    else:
        sound = config
    if sound is not None:
        faults += [f"{where}{fault}" for fault in _impossible(sound)]
        if models is not None:
            faults += [f"{where}{fault}" for fault in _unknown_models(sound, models)]
        faults += [f"{where}{fault}" for fault in _nested(sound, models or (), panels)]
    if faults or config is None:
        raise ConfigError(source, faults)
    return config


LOOPBACK_ONLY = "BENCH_LOOPBACK_ONLY"
"""Set by `bench-proxy serve` where no key is asked: web pages and other names than this machine's are kept out."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the environment says to bench-proxy."""

    bench_config: Path | None
    litellm_config: Path | None
    master_key: str = field(repr=False)
    loopback_only: bool
    url: str
    key: str = field(repr=False)


def environment() -> Environment:
    """The only look at `os.environ` for settings of ours and the few of LiteLLM's that concern us."""
    return Environment(
        bench_config=_path("BENCH_CONFIG"),
        litellm_config=_path("CONFIG_FILE_PATH"),
        master_key=os.environ.get("LITELLM_MASTER_KEY", ""),
        loopback_only=bool(os.environ.get(LOOPBACK_ONLY)),
        url=os.environ.get("BENCH_URL", "http://127.0.0.1:4000"),
        key=os.environ.get("BENCH_KEY") or os.environ.get("LITELLM_MASTER_KEY", ""),
    )


def master_key_set(litellm_file: Path) -> bool:
    """Whether LiteLLM will ask for a key."""
    return bool(master_key(litellm_file))


def master_key(litellm_file: Path) -> str:
    """LiteLLM's, from its file, `os.environ/NAME` included, or the environment; empty where there is none."""
    stated = ""
    for document in _documents(litellm_file).values():  # a later one overrides the section
        if isinstance(general := document.get("general_settings"), dict):
            stated = str(general.get("master_key") or "")
    if stated.startswith("os.environ/"):
        stated = os.environ.get(stated.removeprefix("os.environ/"), "")
    return stated or environment().master_key


CALLBACKS = frozenset({"bench_proxy.gateway", "hooks.bench.gateway"})


def names_callback(litellm_file: Path) -> bool:
    """Whether LiteLLM, started with this file, loads bench-proxy. Raises ConfigError."""
    for document in _documents(litellm_file).values():
        settings = document.get("litellm_settings")
        named = settings.get("callbacks") if isinstance(settings, dict) else None
        if not CALLBACKS.isdisjoint(named if isinstance(named, list) else [named]):
            return True
    return False


def listed_models(litellm_file: Path) -> list[dict[str, Any]]:
    """The entries of LiteLLM's `model_list`. Raises ConfigError."""
    return [dict(entry) for entry in _model_list(list(_documents(litellm_file).values()))]


def closest(name: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or nothing when no known name is near."""
    originals = {one.lower(): one for one in known}
    match = difflib.get_close_matches(name.lower(), originals, n=1, cutoff=0.6)
    return f'; did you mean "{originals[match[0]]}"?' if match else ""


def _path(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value) if value else None


LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where PyYAML has it, ten times as fast."""


def _read(file: Path) -> dict[str, Any]:
    try:
        loaded = yaml.load(file.read_text(encoding="utf-8"), LOADER)  # noqa: S506  a safe one
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror or error}"]) from None
    except RecursionError:
        raise ConfigError(str(file), ["is nested too deeply"]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(str(file), [f"is not valid YAML: {' '.join(str(error).split())}"]) from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(str(file), [f"must be a mapping, not {_kind(loaded)}"])
    return loaded


def _block_of(document: dict[str, Any]) -> Any:
    """A file of its own may hold the block bare or under `bench:`."""
    return document["bench"] if set(document) == {"bench"} else document


def without_collections(source: Source) -> str:
    """Why a configuration that is sound has nothing in it: most likely the block stands where nobody looks."""
    document = _read(source.litellm_file)
    for section, within in document.items():
        if section != "bench" and isinstance(within, dict) and "bench" in within:
            return f"{section}.bench: move it to the top level of the file"
    if "bench" not in document and "collections" in document:
        return "is a bench block itself; give LiteLLM's file, which names it"
    if source.block_file == source.litellm_file and "bench" not in document:
        meant = [name for name in map(str, document) if closest(name, ["bench"])]
        return f'{meant[0]}: write "bench"' if meant else "bench: there is no such block"
    where = "bench." if source.block_file == source.litellm_file else ""
    return f"{where}collections: there is none; at least one names its members"


def _block_in(document: dict[str, Any], file: Path) -> tuple[Path, Any]:
    """The block of a LiteLLM file, and the file that it stands in: `bench: {file: …}` names another one."""
    block = {} if (own := document.get("bench")) is None else own
    if isinstance(block, dict) and set(block) == {"file"}:
        other = file.parent / str(block["file"])
        return other, _block_of(_read(other))
    return file, block


def _documents(file: Path) -> dict[Path, dict[str, Any]]:
    """LiteLLM's file and those that it includes, nested ones too, in the order in which LiteLLM merges them."""
    found: dict[Path, dict[str, Any]] = {}
    seen: set[Path] = set()
    waiting = [file]
    while waiting:
        current = waiting.pop(0)
        if current.resolve() in seen:
            continue
        seen.add(current.resolve())
        document = found[current] = _read(current)
        included = document.get("include", [])
        if not (isinstance(included, list) and all(isinstance(name, str) for name in included)):
            raise ConfigError(str(current), ["include: must be a list of files"])
        # Beside the file that names it, else beside the first one.
        beside = [current.parent / name for name in included]
        waiting += [p if p.exists() else file.parent / name for p, name in zip(beside, included, strict=True)]
    return found


def _model_list(documents: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries of every `model_list`."""
    lists = [document.get("model_list") for document in documents]
    return [entry for listed in lists if isinstance(listed, list) for entry in listed if isinstance(entry, dict)]


def _aliases(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """LiteLLM's other names for its models."""
    found: dict[str, Any] = {}
    for document in documents:
        router = document.get("router_settings")
        if isinstance(router, dict) and isinstance(aliases := router.get("model_group_alias"), dict):
            found.update(aliases)
    return found


def _model_names(documents: Sequence[Mapping[str, Any]]) -> frozenset[str] | None:
    """The names that LiteLLM's files list; None when models can also come from a database."""
    for document in documents:
        general = document.get("general_settings")
        if isinstance(general, dict) and general.get("store_model_in_db"):
            return None
    names = [*(entry.get("model_name") for entry in _model_list(documents)), *_aliases(documents)]
    return frozenset(n for n in names if isinstance(n, str))


def panel_names(entries: Iterable[Mapping[str, Any]], aliases: Mapping[str, Any]) -> frozenset[str]:
    """Which of LiteLLM's model names are collections: by an entry of `model_list`, or as an alias of such a name."""
    names = {
        str(entry.get("model_name"))
        for entry in entries
        if isinstance(params := entry.get("litellm_params"), Mapping)
        and str(params.get("model")).startswith(MODEL_PREFIX)
    }
    targets = {alias: to.get("model") if isinstance(to, Mapping) else to for alias, to in aliases.items()}
    return frozenset(names | {str(alias) for alias, target in targets.items() if str(target) in names})


def _name_faults(block: Mapping[Any, Any]) -> list[str]:
    """Names that YAML lets be anything: of collections and shapes."""
    return [
        f"{section}.{name}: {rule}"
        for section, pattern, rule in NAMED
        for name in _keys(block, section)
        if not (isinstance(name, str) and pattern.fullmatch(name))
    ]


def _misleading(block: Mapping[Any, Any]) -> list[str]:
    return [
        f'collections.{name}: LiteLLM would send a model with "{word}" in its name to that provider; choose another'
        for name in _keys(block, "collections")
        for word in OTHERS_NAMES
        if word in str(name)
    ]


def _keys(block: Mapping[Any, Any], section: str) -> list[Any]:
    value = block.get(section)
    return list(value) if isinstance(value, dict) else []


def _fault(error: Any) -> str:
    path = ".".join(str(part) for part in error["loc"] if part != "[key]")
    match error["type"]:
        case "extra_forbidden":
            return f"{path}: unknown key{closest(str(error['loc'][-1]), _fields_at(error['loc'][:-1]))}"
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", error["ctx"]["expected"])
            return (
                f"{path}: {error['input']!r} is not one of {', '.join(allowed)}{closest(str(error['input']), allowed)}"
            )
        case "missing":
            return f"{path}: is required"
        case "tuple_type" | "list_type":
            return f"{path}: should be a list, as in [one, another], not {_kind(error['input'])}"
        case "dict_type" | "model_type" | "mapping_type":
            return f"{path}: should be a mapping, as in {{name: value}}, not {_kind(error['input'])}"
        case "too_short":
            return f"{path}: must not be empty"
        case "value_error":
            return f"{path}: {error['ctx']['error']}"
        case _:
            message = error["msg"][0].lower() + error["msg"][1:]
            return f"{path}: {message}, not {_kind(error['input'])}"


def _sound_part(block: Mapping[Any, Any], faulty: Iterable[tuple[Any, ...]]) -> Config | None:
    """The block without its faulty fields, so that all else that is wrong is found in the same run.

    None when what other sections are measured by is at fault itself.
    """
    rest = {name: dict(value) if isinstance(value, dict) else value for name, value in block.items()}
    for section, *inner in faulty:
        if section in {"limits", "shapes"}:
            return None
        within = rest.get(section)
        if not (inner and isinstance(within, dict)):
            rest.pop(section, None)
        elif section in {"collections", "models"} and inner[1:] and inner[1] not in {"members", "[key]"}:
            within[inner[0]] = {k: v for k, v in within.get(inner[0], {}).items() if k != inner[1]}
        else:
            within.pop(inner[0], None)
    try:
        return Config.model_validate(rest)
    except ValidationError:
        return None


def _fields_at(path: tuple[Any, ...]) -> list[str]:
    """The keys that are valid where an unknown one stood, by walking the sections along its path."""
    section: Any = Config
    entries: dict[str, type[Section]] = {"collections": CollectionSettings, "models": ModelFacts}
    parts = list(path)
    while parts:
        part = str(parts.pop(0))
        if part in entries and section is Config and parts:
            section = entries[part]
            parts.pop(0)
        else:
            field = section.model_fields.get(part)
            section = field.annotation if field is not None else None
        if not (isinstance(section, type) and issubclass(section, Section)):
            return []
    return list(section.model_fields)


def _impossible(config: Config) -> list[str]:
    """Combinations that pass field by field and still cannot work."""
    faults = []
    for name, collection in config.collections.items():
        at = f"collections.{name}"
        members = list(dict.fromkeys(collection.members))
        if len(members) > config.limits.max_calls:
            faults.append(f"{at}.members: {len(members)} members, limits.max_calls is {config.limits.max_calls}")
        most = config.limits.max_explorers
        if collection.explorers is not None and collection.explorers > most:
            faults.append(f"{at}.explorers: {collection.explorers} is more than limits.max_explorers, {most}")
        if collection.quorum > config.limits.max_calls:
            faults.append(
                f"{at}.quorum: {collection.quorum} can never answer, limits.max_calls is {config.limits.max_calls}"
            )
        if collection.shape and collection.shape not in config.all_shapes:
            faults.append(
                f'{at}.shape: unknown shape "{collection.shape}"{closest(collection.shape, config.all_shapes)}'
            )
        for index, member in enumerate(collection.members):
            if member.lower().startswith(MODEL_PREFIX):
                faults.append(f"{at}.members.{index}: {member} is a collection; a collection cannot hold another")
        if collection.merger.lower().startswith(MODEL_PREFIX):
            faults.append(f"{at}.merger: {collection.merger} is a collection; a merger must be a model")
    faults += [
        f"models.{name}: is a collection; facts are about models"
        for name in config.models
        if name.lower().startswith(MODEL_PREFIX)
    ]
    if config.decision_model.lower().startswith(MODEL_PREFIX):
        faults.append(f"decision_model: {config.decision_model} is a collection; it must be a model")
    return faults


MOST_LISTED = 10
"""Names that a fault lists when none is near."""


def _unknown_models(config: Config, models: Collection[str]) -> list[str]:
    """Names that LiteLLM does not serve; a wildcard entry such as `openai/*` serves all that it matches."""
    wildcards = [m for m in models if "*" in m]

    def fault(at: str, name: str) -> list[str]:
        if name in models or name.lower().startswith(MODEL_PREFIX) or any(fnmatchcase(name, w) for w in wildcards):
            return []
        listed = ", ".join(sorted(models)[:MOST_LISTED]) + (", …" if len(models) > MOST_LISTED else "")
        return [f'{at}: LiteLLM has no model "{name}"{closest(name, models) or f"; its model_names are: {listed}"}']

    faults = []
    for name, collection in config.collections.items():
        for index, member in enumerate(collection.members):
            faults += fault(f"collections.{name}.members.{index}", member)
        if collection.merger:
            faults += fault(f"collections.{name}.merger", collection.merger)
    for name in config.models:
        faults += fault(f"models.{name}", name)
    if config.decision_model:
        faults += fault("decision_model", config.decision_model)
    return faults


def _nested(config: Config, models: Collection[str], panels: Collection[str]) -> list[str]:
    """Names of LiteLLM's models behind which there is a collection again."""
    patterns = [p for p in panels if "*" in p]

    def fault(at: str, name: str) -> list[str]:
        if name.lower().startswith(MODEL_PREFIX):  # said already
            return []
        if name in panels or (name not in models and any(fnmatchcase(name, p) for p in patterns)):
            return [f'{at}: LiteLLM\'s model "{name}" is a collection itself; a panel cannot sit on a panel']
        return []

    faults = []
    for name, collection in config.collections.items():
        for index, member in enumerate(collection.members):
            faults += fault(f"collections.{name}.members.{index}", member)
        faults += fault(f"collections.{name}.merger", collection.merger)
    return faults + fault("decision_model", config.decision_model)


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    if value is None:
        return "nothing"
    kind = names.get(type(value), type(value).__name__)
    # An address may hold a password: a database's stands here when its section was mistaken for it.
    shown = isinstance(value, str | int | float) and len(str(value)) <= 40 and "://" not in str(value)
    return f"{kind} ({value!r})" if shown else kind
