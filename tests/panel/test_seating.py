"""Who sits on a panel: members in order, guests, then the explorers whose evidence is stalest."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_proxy.catalog import Catalog, HostFacts, Model
from bench_proxy.config import BUILT_IN_SHAPES, Config
from bench_proxy.errors import InvalidRequest, NobodyCanSit
from bench_proxy.formats.request import Brief
from bench_proxy.panel.seating import Numbering, Plan, plan, stalest

PANEL = "p20260301-120005-abcdefghijklmnop"


def catalog(*hosted: HostFacts | str, **facts: Any) -> Catalog:
    """Names are chat models of their own; `facts` is what the operator says of some of them."""
    hosts = [HostFacts(h, underlying=h) if isinstance(h, str) else h for h in hosted]
    return Catalog(hosts, Config.model_validate({"models": facts}).models)


def config(members: list[str], limits: dict[str, int] | None = None, **settings: Any) -> Config:
    return Config.model_validate(
        {
            "collections": {"core": {"members": members, **settings}},
            "limits": limits or {},
            "shapes": {"legal": ["code"]},
        }
    )


def seat(
    settings: Config,
    models: Catalog,
    *guests: str,
    images: bool = False,
    allowed: Iterable[str] | None = None,
    **ask: Any,
) -> Plan:
    brief = Brief(model="bench/core", collection="core", reply="all", guests=guests, **ask)
    callable_guests = models.aliases if allowed is None else frozenset(allowed)
    return plan(Numbering(PANEL), brief, settings, models, images=images, allowed=callable_guests)


def seated(planned: Plan) -> list[tuple[str, str]]:
    return [(s.kind, s.alias) for s in planned.seats]


def skipped(planned: Plan) -> dict[str, str]:
    return {s.alias: s.why for s in planned.skipped}


def candidates(planned: Plan) -> set[str]:
    return {m.alias for m in planned.candidates}


# Members


def test_nobody_left_to_sit_is_an_error_that_names_each_and_why() -> None:
    models = catalog("a", "b", "x", a={"retired": True}, b={"role": "vision"})
    with pytest.raises(NobodyCanSit, match=r"bench/core: a: retired; b: only for images") as refused:
        seat(config(["a", "b"], explorers=0), models)
    assert refused.value.status == 503


def test_explorer_seats_that_nobody_can_take_make_no_panel() -> None:
    with pytest.raises(NobodyCanSit):
        seat(config(["a"], explorers=2), catalog("a", a={"retired": True}))


def test_images_that_no_seat_can_see_are_the_callers_error_and_it_says_what_to_set() -> None:
    with pytest.raises(InvalidRequest, match=r"a: cannot see images; b: retired.*`vision: true`") as refused:
        seat(config(["a", "b"], explorers=0), catalog("a", "b", b={"retired": True}), images=True)
    assert refused.value.status == 400


def test_members_sit_in_the_order_of_the_config() -> None:
    planned = seat(config(["c", "a", "b"]), catalog("a", "b", "c"))
    assert seated(planned) == [("member", "c"), ("member", "a"), ("member", "b")]
    assert [s.call for s in planned.seats] == [f"{PANEL}.member{n}" for n in (1, 2, 3)]


def test_a_member_named_twice_sits_once() -> None:
    assert seated(seat(config(["a", "b", "a"]), catalog("a", "b"))) == [("member", "a"), ("member", "b")]


def test_a_family_sits_once_and_the_other_is_named_with_why() -> None:
    models = catalog(HostFacts("mine", "openai/gpt-4o"), HostFacts("dated", "azure/gpt-4o-2024-08-06"), "b")
    planned = seat(config(["mine", "dated", "b"]), models)
    assert seated(planned) == [("member", "mine"), ("member", "b")]
    assert skipped(planned) == {"dated": "same family as mine"}


def test_seat_numbers_have_no_gaps_where_a_member_sat_out() -> None:
    planned = seat(config(["a", "b", "c"]), catalog("a", "b", "c", a={"retired": True}))
    assert [s.call.rpartition(".")[2] for s in planned.seats] == ["member1", "member2"]


SITS_OUT = [
    ({"retired": True}, {}, False, "retired"),
    ({}, {"chats": False}, False, "not a chat model"),
    ({"role": "vision"}, {}, False, "only for images, and there is none in the request"),
    ({}, {}, True, "cannot see images"),
    ({"vision": False}, {"vision": True}, True, "cannot see images"),
]


@pytest.mark.parametrize(("facts", "host", "images", "why"), SITS_OUT)
def test_a_member_that_must_sit_out_is_named_with_why(
    facts: dict[str, Any], host: dict[str, Any], images: bool, why: str
) -> None:
    models = catalog(HostFacts("a", "a", **host), HostFacts("eye", "eye", vision=True), a=facts)
    planned = seat(config(["a", "eye"]), models, images=images)
    assert seated(planned) == [("member", "eye")]
    assert [(s.kind, s.alias, s.why) for s in planned.skipped] == [("member", "a", why)]


@pytest.mark.parametrize("facts", [{"vision": True}, {"role": "vision"}])
def test_a_member_that_can_see_sits_when_there_are_images(facts: dict[str, Any]) -> None:
    assert seated(seat(config(["a"]), catalog("a", a=facts), images=True)) == [("member", "a")]


@pytest.mark.parametrize("role", ["general", "code", "light"])
@pytest.mark.parametrize("shape", BUILT_IN_SHAPES)
def test_a_member_sits_whatever_its_role_and_the_shape(role: str, shape: str) -> None:
    assert seated(seat(config(["a"]), catalog("a", a={"role": role}), shape=shape)) == [("member", "a")]


def test_a_member_that_only_a_wildcard_serves_sits() -> None:
    assert seated(seat(config(["openai/gpt-4o"]), catalog("a"))) == [("member", "openai/gpt-4o")]


# Shape


def test_the_requests_shape_wins_then_the_collections_then_images_then_general() -> None:
    models = catalog(HostFacts("a", "a", vision=True))
    own = config(["a"], shape="review")
    assert [
        (p.shape, p.shape_by)
        for p in (
            seat(own, models, shape="legal"),
            seat(own, models, images=True),
            seat(config(["a"]), models, images=True),
            seat(config(["a"]), models),
        )
    ] == [("legal", "request"), ("review", "collection"), ("vision", "default"), ("general", "default")]


# Explorers


def open_seats(limits: dict[str, int] | None = None, members: int = 2, asked: int | None = None, **own: Any) -> int:
    names = [f"m{n}" for n in range(members)]
    models = catalog(*names, *(f"x{n}" for n in range(9)))
    return seat(config(names, limits, **own), models, explorers=asked).open_seats


def test_the_smallest_of_the_four_numbers_says_how_many_explorers_sit() -> None:
    assert open_seats() == 2
    assert open_seats({"max_explorers": 3, "max_calls": 9}) == 3
    assert open_seats({"max_explorers": 3, "max_calls": 9}, explorers=1) == 1
    assert open_seats({"max_explorers": 3, "max_calls": 9}, explorers=3, asked=2) == 2
    assert open_seats({"max_explorers": 3, "max_calls": 3}, explorers=3, asked=3) == 1
    assert open_seats(members=5) == 0
    assert open_seats(explorers=0) == 0
    assert open_seats(asked=0) == 0


def test_a_request_can_ask_for_fewer_explorers_and_never_for_more() -> None:
    assert open_seats(explorers=1, asked=2) == 1
    assert open_seats(asked=64) == 2


def test_the_seat_of_a_member_that_sits_out_is_filled() -> None:
    names = ["a", "b", "c"]
    planned = seat(config(names, {"max_calls": 3}), catalog(*names, "x", "y", a={"retired": True}))
    assert planned.open_seats == 1


def test_without_a_candidate_no_seat_is_open() -> None:
    assert seat(config(["a"]), catalog("a")).open_seats == 0


def test_explorers_alone_make_a_panel_when_no_member_can_sit() -> None:
    planned = seat(config(["a"]), catalog("a", "x", a={"retired": True}))
    assert (seated(planned), planned.open_seats, candidates(planned)) == ([], 2, {"x"})


def test_a_member_is_no_candidate() -> None:
    assert candidates(seat(config(["a"]), catalog("a", "x"))) == {"x"}


def test_a_model_of_a_seated_family_is_no_candidate() -> None:
    models = catalog(HostFacts("a", "gpt-4o"), HostFacts("b", "gpt-4o-latest"), HostFacts("g", "gpt-4o-mini"), "x")
    assert candidates(seat(config(["a"]), models)) == {"g", "x"}
    assert candidates(seat(config(["a"]), models, "g")) == {"x"}


NO_EXPLORER = [({"explore": False}, {}), ({"retired": True}, {}), ({"role": "light"}, {}), ({"role": "code"}, {})]


@pytest.mark.parametrize(("facts", "host"), [*NO_EXPLORER, ({}, {"chats": False})])
def test_a_model_that_must_not_explore_is_no_candidate(facts: dict[str, Any], host: dict[str, Any]) -> None:
    assert candidates(seat(config(["a"]), catalog("a", HostFacts("x", "x", **host), "y", x=facts))) == {"y"}


ROLES = ("general", "code", "light", "vision")
ADMITTED = [(shape, role, role in roles) for shape, roles in BUILT_IN_SHAPES.items() for role in ROLES]


@pytest.mark.parametrize(
    ("shape", "role", "admitted"), [*ADMITTED, ("legal", "code", True), ("legal", "general", False)]
)
def test_a_shape_admits_the_explorers_of_its_roles(shape: str, role: str, admitted: bool) -> None:
    models = catalog(HostFacts("a", "a", vision=True), "x", x={"role": role})
    # A model that is only for images explores where there are some.
    planned = seat(config(["a"]), models, shape=shape, images=role == "vision")
    assert candidates(planned) == ({"x"} if admitted else set())


def test_only_models_that_see_explore_when_there_are_images() -> None:
    models = catalog(
        *(HostFacts(n, n, vision=sees) for n, sees in (("a", True), ("x", True), ("y", None), ("z", False)))
    )
    assert candidates(seat(config(["a"]), models, images=True)) == {"x"}


# Guests


@pytest.mark.parametrize("allowed", [[], ["g"]])
def test_a_guest_that_the_key_may_not_call_is_refused_by_name(allowed: list[str]) -> None:
    with pytest.raises(InvalidRequest, match='"h" in "with"') as refused:
        seat(config(["a"]), catalog("a", "g", "h"), "h", allowed=allowed)
    assert (refused.value.status, refused.value.param) == (400, "bench.with")
    assert f"Models: {', '.join(allowed) or 'see GET /v1/models'}." in refused.value.message


def test_a_refused_guest_says_nothing_of_models_that_the_key_may_not_call() -> None:
    with pytest.raises(InvalidRequest) as refused:
        seat(config(["a"]), catalog("a", "secret", "g"), "nobody", allowed=["g"])
    assert "secret" not in refused.value.message


def test_guests_take_explorer_seats_first_and_in_order() -> None:
    models = catalog("a", "g", "h", "x")
    one = seat(config(["a"]), models, "g")
    assert (seated(one), one.open_seats) == ([("member", "a"), ("guest", "g")], 1)
    both = seat(config(["a"]), models, "h", "g")
    assert (seated(both), both.open_seats) == ([("member", "a"), ("guest", "h"), ("guest", "g")], 0)
    assert [s.call.rpartition(".")[2] for s in both.seats] == ["member1", "guest1", "guest2"]


def test_a_guest_for_whom_no_seat_is_left_is_named() -> None:
    planned = seat(config(["a"]), catalog("a", "g", "h", "i"), "g", "h", "i")
    assert seated(planned) == [("member", "a"), ("guest", "g"), ("guest", "h")]
    assert [(s.kind, s.alias) for s in planned.skipped] == [("guest", "i")]
    assert "no seat left" in skipped(planned)["i"]


def test_guests_never_take_a_panel_over_its_calls() -> None:
    names = ["a", "b", "c", "d"]
    planned = seat(config(names), catalog(*names, "g", "h"), "g", "h")
    assert len(planned.seats) == 5
    assert list(skipped(planned)) == ["h"]


@pytest.mark.parametrize("facts", [{"role": "light"}, {"role": "code"}, {"explore": False}])
def test_a_guest_may_be_of_any_role_and_one_that_does_not_explore(facts: dict[str, Any]) -> None:
    assert seated(seat(config(["a"]), catalog("a", "g", g=facts), "g")) == [("member", "a"), ("guest", "g")]


def test_a_guest_of_a_seated_family_is_named_and_leaves_its_seat_to_the_next() -> None:
    models = catalog(HostFacts("a", "gpt-4o"), HostFacts("g", "gpt-4o-latest"), "h", "x")
    planned = seat(config(["a"]), models, "g", "a", "h")
    assert seated(planned) == [("member", "a"), ("guest", "h")]
    # A guest that is a member sits already, as was asked for.
    assert skipped(planned) == {"g": "same family as a"}
    assert planned.open_seats == 1


def test_a_guest_that_cannot_see_the_images_is_named() -> None:
    models = catalog(HostFacts("a", "a", vision=True), "g")
    assert skipped(seat(config(["a"]), models, "g", images=True)) == {"g": "cannot see images"}


# The stalest first


def models(*names: str, **families: str) -> list[Model]:
    return list(catalog(*names, **{name: {"family": family} for name, family in families.items()}))


def choose(candidates: list[Model], last: dict[str, int], count: int, seed: int = 0) -> list[str]:
    return [m.alias for m in stalest(candidates, last, count, random.Random(seed))]  # noqa: S311


NOW = 1_772_366_405_123


def test_the_one_seated_longest_ago_sits_first_to_the_millisecond() -> None:
    last = {"x": NOW, "y": NOW - 1, "z": NOW - 2}
    for seed in range(50):
        assert choose(models("x", "y", "z"), last, 2, seed) == ["z", "y"]


def test_one_that_was_never_seated_sits_before_all_others() -> None:
    for seed in range(50):
        assert choose(models("x", "y", "z"), {"x": 1, "z": 2}, 2, seed) == ["y", "x"]


def test_ties_are_decided_at_random_and_fairly() -> None:
    names = [f"x{n}" for n in range(10)]
    rng = random.Random(7)  # noqa: S311
    seats = Counter(m.alias for _ in range(5000) for m in stalest(models(*names), {}, 2, rng))
    # 10,000 draws of 10 names: a share of 1000, give or take five standard deviations.
    assert all(abs(seats[name] - 1000) < 150 for name in names), seats


def test_forty_panels_over_ten_equal_candidates_give_each_eight_seats() -> None:
    names = [f"x{n}" for n in range(10)]
    candidates, last, seats = models(*names), dict[str, int](), Counter[str]()
    for now in range(1, 41):
        for alias in choose(candidates, last, 2, seed=now):
            last[alias] = now
            seats[alias] += 1
    assert set(seats.values()) == {8}


def test_a_family_gets_one_explorer_seat() -> None:
    same = models("x", "y", "z", x="f", y="f")
    for seed in range(20):
        assert sorted(choose(same, {"x": 1, "y": 2, "z": 3}, 3, seed)) == ["x", "z"]


ODD_TIMES = st.dictionaries(st.sampled_from(["x", "y", "z", "gone"]), st.integers() | st.floats(allow_nan=True))


@given(ODD_TIMES, st.integers(0, 5), st.integers())
def test_any_times_on_the_record_yield_a_valid_choice(last: dict[str, int], count: int, seed: int) -> None:
    chosen = choose(models("x", "y", "z"), last, count, seed)
    assert len(chosen) == len(set(chosen)) == min(count, 3)
    assert set(chosen) <= {"x", "y", "z"}


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True)


@given(NAMES, NAMES, st.integers(1, 6), st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_no_panel_is_larger_than_its_limits(
    members: list[str], guests: list[str], most: int, explorers: int, asked: int, images: bool
) -> None:
    known = catalog(*(HostFacts(n, n, vision=n < "f") for n in "abcdefgh"), d={"family": "a"}, e={"retired": True})
    limits = {"max_calls": max(most, len(members)), "max_explorers": explorers}
    try:
        planned = seat(config(members, limits), known, *guests, images=images, explorers=asked)
    except (InvalidRequest, NobodyCanSit):
        return
    kinds = Counter(s.kind for s in planned.seats)
    assert len(planned.seats) + planned.open_seats <= limits["max_calls"]
    assert kinds["guest"] + planned.open_seats <= explorers
    families = [known.get(s.alias).family for s in planned.seats]
    assert len(set(families)) == len(families)
    named = {s.alias for s in planned.seats} | set(skipped(planned))
    assert named == {*members, *guests}
    assert candidates(planned).isdisjoint(s.alias for s in planned.seats)
