"""What route mode does not take of the request's own options, and the words that say what it does instead."""

from bench_proxy.errors import InvalidRequest
from bench_proxy.formats.request import Brief


def refuse_panel_options(brief: Brief) -> None:
    """Raise InvalidRequest for an option that only a panel can honour: who asked for it must not take one model's
    answer for more. What a collection has set for its panels asks nothing of a turn.
    """
    asked = {
        "with": (bool(brief.guests), "one member of the collection answers and no guest is asked"),
        "explorers": (bool(brief.explorers), "one member answers and no explorer is asked beside it"),
        "quorum": (brief.quorum is not None, "one member answers, and there is nothing to count"),
        "blind": (brief.blind, "the reply names the member that answered"),
        "partial": (brief.partial == "refuse", "one member answers, whole or with an error"),
        "stream": (brief.stream_mode is not None, "the one answer comes as the member writes it"),
    }
    for name, (is_asked, instead) in asked.items():
        if is_asked:
            raise InvalidRequest(
                f"bench.{name} cannot be honoured in route mode: {instead}. Leave it out, or ask a panel:"
                f" bench/{brief.collection}:all",
                param=f"bench.{name}",
            )
