"""What is heard of an answer in a format that is passed on."""

from bench_proxy.formats.relays import Hearing, Relayed, Relaying, Said
from bench_proxy.formats.splicing import read


def hear(hearing: Hearing, *events: bytes) -> list[Relayed]:
    """What passes at once."""
    return [passed for data in events for passed in hearing.heard(Relayed(data, read(data)))]


def understood(relaying: Relaying, data: bytes) -> Said:
    hearing = relaying.hearing()
    hearing.whole(read(data))
    assert hearing.ended
    return hearing.said
