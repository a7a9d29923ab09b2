"""The `bench:` block is parsed once, refuses what it cannot honour, and says everything that is wrong at once."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bench_proxy.config import (
    BUILT_IN_SHAPES,
    Config,
    Source,
    closest,
    environment,
    load,
    master_key_set,
    parse,
)
from bench_proxy.errors import ConfigError

Json = dict[str, Any]
MODELS = frozenset({"gpt", "claude", "local-qwen"})
VARIABLES = ("BENCH_CONFIG", "CONFIG_FILE_PATH", "LITELLM_MASTER_KEY", "BENCH_URL", "BENCH_KEY", "PROXY_KEY")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def faults(block: object, models: frozenset[str] | None = MODELS) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        parse(block, "litellm_config.yaml", models=models)
    return raised.value.faults


def fault(block: object, models: frozenset[str] | None = MODELS) -> str:
    """The only fault of a block."""
    found = faults(block, models)
    assert len(found) == 1, found
    return found[0]


def core(**settings: Any) -> Json:
    """A block with one collection of one member."""
    return {"collections": {"core": {"members": ["gpt"], **settings}}}


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def litellm(*models: str, **more: Any) -> Json:
    listed = [{"model_name": name, "litellm_params": {"model": f"openai/{name}"}} for name in models]
    return {"model_list": listed, **more}


# What is wrong


UNKNOWN_KEYS = [
    ({"colections": {}}, "bench.colections", "collections"),
    (core(merget="gpt"), "bench.collections.core.merget", "merger"),
    ({"limits": {"max_cals": 3}}, "bench.limits.max_cals", "max_calls"),
    ({"timing": {"seat_time_out": 3}}, "bench.timing.seat_time_out", "seat_timeout"),
    ({"models": {"gpt": {"rol": "code"}}}, "bench.models.gpt.rol", "role"),
    ({"route": {"explore_shares": 0.1}}, "bench.route.explore_shares", "explore_share"),
    ({"ledger": {"uri": "sqlite:///bench.db"}}, "bench.ledger.uri", "url"),
    ({"access": {"requirekey": True}}, "bench.access.requirekey", "require_key"),
]


@pytest.mark.parametrize(("block", "path", "nearest"), UNKNOWN_KEYS, ids=[path for _, path, _ in UNKNOWN_KEYS])
def test_an_unknown_key_is_a_fault_at_its_path_and_the_nearest_key_is_named(
    block: Json, path: str, nearest: str
) -> None:
    assert fault(block) == f'{path}: unknown key; did you mean "{nearest}"?'


def test_an_unknown_key_that_is_near_to_nothing_gets_no_guess() -> None:
    assert fault({"xyzzy": 1}) == "bench.xyzzy: unknown key"


LITERALS = [
    (core(reply="al"), "bench.collections.core.reply", "all"),
    (core(stream="lives"), "bench.collections.core.stream", "live"),
    (core(on_disconnect="finnish"), "bench.collections.core.on_disconnect", "finish"),
    ({"models": {"gpt": {"role": "coder"}}}, "bench.models.gpt.role", "code"),
    ({"shapes": {"legal": ["generl"]}}, "bench.shapes.legal.0", "general"),
    ({"route": {"unknown_tools": "skipp"}}, "bench.route.unknown_tools", "skip"),
    ({"ledger": {"content": "answer"}}, "bench.ledger.content", "answers"),
]


@pytest.mark.parametrize(("block", "path", "nearest"), LITERALS, ids=[path for _, path, _ in LITERALS])
def test_a_word_that_is_none_of_the_choices_is_a_fault_that_names_the_nearest(
    block: Json, path: str, nearest: str
) -> None:
    found = fault(block)
    assert found.startswith(f"{path}: ")
    assert found.endswith(f'; did you mean "{nearest}"?')


WRONG_TYPES = [
    (core(members="gpt"), "bench.collections.core.members"),
    (core(members=[]), "bench.collections.core.members"),
    (core(members={"gpt": 1}), "bench.collections.core.members"),
    (core(description=5), "bench.collections.core.description"),
    (core(tags="code"), "bench.collections.core.tags"),
    (core(explorers="many"), "bench.collections.core.explorers"),
    (core(deadline=[]), "bench.collections.core.deadline"),
    ({"collections": []}, "bench.collections"),
    ({"collections": {"core": None}}, "bench.collections.core"),
    ({"collections": {"core": {}}}, "bench.collections.core.members"),
    ({"limits": None}, "bench.limits"),
    ({"limits": {"max_calls": 2.5}}, "bench.limits.max_calls"),
    ({"timing": {"seat_timeout": "soon"}}, "bench.timing.seat_timeout"),
    ({"models": {"gpt": None}}, "bench.models.gpt"),
    ({"models": {"gpt": {"tools": "perhaps"}}}, "bench.models.gpt.tools"),
    ({"shapes": {"legal": "general"}}, "bench.shapes.legal"),
    ({"decision_model": 7}, "bench.decision_model"),
    ({"access": {"allowed_origins": "*"}}, "bench.access.allowed_origins"),
]


@pytest.mark.parametrize(("block", "path"), WRONG_TYPES, ids=[path for _, path in WRONG_TYPES])
def test_a_value_of_the_wrong_type_is_a_fault_at_its_path(block: Json, path: str) -> None:
    assert fault(block).startswith(f"{path}: ")


OUT_OF_RANGE = [
    (core(description="x" * 301), "bench.collections.core.description"),
    (core(tags=["a"] * 9), "bench.collections.core.tags"),
    (core(tags=["x" * 25]), "bench.collections.core.tags.0"),
    (core(tags=["Code"]), "bench.collections.core.tags.0"),
    (core(explorers=-1), "bench.collections.core.explorers"),
    (core(quorum=-1), "bench.collections.core.quorum"),
    (core(deadline=-0.5), "bench.collections.core.deadline"),
    ({"limits": {"max_calls": 0}}, "bench.limits.max_calls"),
    ({"limits": {"max_explorers": -1}}, "bench.limits.max_explorers"),
    ({"limits": {"max_body_mb": 0}}, "bench.limits.max_body_mb"),
    ({"limits": {"concurrent_panels": -1}}, "bench.limits.concurrent_panels"),
    ({"timing": {"seat_timeout": 0}}, "bench.timing.seat_timeout"),
    ({"timing": {"keep_alive": -1}}, "bench.timing.keep_alive"),
    ({"models": {"gpt": {"context_window": 511}}}, "bench.models.gpt.context_window"),
    ({"models": {"gpt": {"max_output": 0}}}, "bench.models.gpt.max_output"),
    ({"route": {"explore_share": 1.5}}, "bench.route.explore_share"),
    ({"route": {"attempts": 0}}, "bench.route.attempts"),
    ({"route": {"shadow": -0.1}}, "bench.route.shadow"),
    ({"ledger": {"keep_days": -1}}, "bench.ledger.keep_days"),
    ({"ledger": {"keep_days": 36_501}}, "bench.ledger.keep_days"),
    ({"ledger": {"url": "mysql://localhost/bench"}}, "bench.ledger.url"),
]


@pytest.mark.parametrize(("block", "path"), OUT_OF_RANGE, ids=[path for _, path in OUT_OF_RANGE])
def test_a_value_out_of_its_range_is_a_fault_at_its_path(block: Json, path: str) -> None:
    assert fault(block).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "*",
        "null",
        "app.example.com",
        "https://app.example.com/",
        "https://app.example.com/path",
        "https://App.example.com",
        "https://app.example.com:443",
        "http://app.example.com:80",
        "https://*.example.com",
        "https://me@app.example.com",
        "https://bücher.example",
        "https://app.example.com\n",
    ],
)
def test_what_no_browser_sends_as_an_origin_is_a_fault(origin: str) -> None:
    said = fault({"access": {"allowed_origins": ["https://fine.example", origin]}})
    assert said.startswith(f'bench.access.allowed_origins: "{origin}" is no origin')


@pytest.mark.parametrize(
    "host", ["", "*", "*.", "http://bench.internal", "bench.internal/", "Bench.internal", "a.*.example", "a:b", "::1"]
)
def test_what_is_no_name_of_a_host_is_a_fault(host: str) -> None:
    said = fault({"access": {"allowed_hosts": ["bench.internal", host]}})
    assert said.startswith(f'bench.access.allowed_hosts: "{host}" is no name')


def test_origins_and_hosts_as_clients_send_them_are_accepted() -> None:
    origins = ["https://app.example.com", "http://localhost:3000", "http://[::1]:80000", "chrome-extension://abc"]
    hosts = ["bench.internal", "bench.internal:8080", "*.example.com", "[::1]", "192.0.2.1:4000"]
    access = parse({"access": {"allowed_origins": origins, "allowed_hosts": hosts}}, "x.yaml").access
    assert (list(access.allowed_origins), list(access.allowed_hosts)) == (origins, hosts)


NUMBERS = ["collections.core.deadline", "limits.max_body_mb", "route.explore_share", "route.shadow"]
NUMBERS += [f"timing.{name}" for name in ("seat_timeout", "explorer_grace", "keep_alive", "first_piece", "turn")]
NUMBERS += [f"timing.{name}" for name in ("hold_status", "sticky_idle")]


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_that_is_not_finite_is_a_fault(path: str, number: str) -> None:
    block: Json = core()
    section = block
    *parents, name = path.split(".")
    for parent in parents:
        section = section.setdefault(parent, {})
    section[name] = yaml.safe_load(number)
    assert fault(block).startswith(f"bench.{path}: ")


@pytest.mark.parametrize(
    "name", ["Core", "-core", "", "a b", "core:route", "core/x", "x" * 65, "café", "core\n", 1, None]
)
def test_a_collection_name_that_could_not_be_asked_for_is_a_fault(name: object) -> None:
    assert any(
        f.startswith(f"bench.collections.{name}: ") for f in faults({"collections": {name: {"members": ["gpt"]}}})
    )


@pytest.mark.parametrize("name", ["core", "0", "a-b-", "x" * 64])
def test_a_collection_name_of_small_letters_digits_and_dashes_is_taken(name: str) -> None:
    assert list(parse({"collections": {name: {"members": ["gpt"]}}}, "file").collections) == [name]


@pytest.mark.parametrize("name", ["Legal", "9lives", "", "a b", "x" * 33, "legal\n", 1])
def test_a_shape_name_that_could_not_be_asked_for_is_a_fault(name: object) -> None:
    assert any(f.startswith(f"bench.shapes.{name}: ") for f in faults({"shapes": {name: ["general"]}}))


def test_an_unknown_member_is_a_fault_at_its_place_and_the_nearest_model_is_named() -> None:
    assert fault(core(members=["gpt", "Claud"])) == (
        'bench.collections.core.members.1: LiteLLM has no model "Claud"; did you mean "claude"?'
    )


UNKNOWN_MODELS = [
    (core(merger="cloude"), "bench.collections.core.merger"),
    ({"models": {"cloude": {}}}, "bench.models.cloude"),
    ({"decision_model": "cloude"}, "bench.decision_model"),
]


@pytest.mark.parametrize(("block", "path"), UNKNOWN_MODELS, ids=[path for _, path in UNKNOWN_MODELS])
def test_every_place_that_names_a_model_must_name_one_that_litellm_serves(block: Json, path: str) -> None:
    assert fault(block) == f'{path}: LiteLLM has no model "cloude"; did you mean "claude"?'


COLLECTIONS_FOR_MODELS = [
    (core(members=["gpt", "bench/other"]), "bench.collections.core.members.1"),
    (core(members=["gpt", "BENCH/other"]), "bench.collections.core.members.1"),
    (core(merger="bench/other"), "bench.collections.core.merger"),
    ({"decision_model": "bench/other"}, "bench.decision_model"),
    ({"models": {"bench/other": {}}}, "bench.models.bench/other"),
]


@pytest.mark.parametrize(
    ("block", "path"), COLLECTIONS_FOR_MODELS, ids=[path for _, path in COLLECTIONS_FOR_MODELS[:-1]] + ["facts"]
)
def test_a_collection_cannot_stand_where_a_model_is_meant(block: Json, path: str) -> None:
    assert fault(block).startswith(f"{path}: ")


def test_more_members_than_a_panel_may_call_are_a_fault() -> None:
    block = core(members=["gpt", "claude", "local-qwen"]) | {"limits": {"max_calls": 2}}
    found = fault(block)
    assert found.startswith("bench.collections.core.members: 3 members")
    assert "limits.max_calls is 2" in found


def test_a_member_named_twice_counts_once() -> None:
    block = core(members=["gpt", "claude", "gpt"]) | {"limits": {"max_calls": 2}}
    assert parse(block, "file", models=MODELS)


def test_more_explorers_than_the_maximum_are_a_fault() -> None:
    found = fault(core(explorers=3))
    assert found.startswith("bench.collections.core.explorers: 3 is more than limits.max_explorers")


def test_a_quorum_that_no_panel_can_reach_is_a_fault() -> None:
    assert fault(core(quorum=6)).startswith("bench.collections.core.quorum: 6 can never answer")


def test_an_unknown_shape_is_a_fault_and_the_nearest_is_named() -> None:
    assert (
        fault(core(shape="reviews")) == 'bench.collections.core.shape: unknown shape "reviews"; did you mean "review"?'
    )


def test_a_shape_of_the_operators_own_can_be_a_collections_shape() -> None:
    config = parse(core(shape="legal") | {"shapes": {"legal": ["general", "light"]}}, "file")
    assert config.all_shapes == {**BUILT_IN_SHAPES, "legal": ("general", "light")}


def test_a_built_in_shape_can_be_replaced() -> None:
    assert parse({"shapes": {"quick": ["light"]}}, "file").all_shapes["quick"] == ("light",)


@pytest.mark.parametrize("block", [[], "core", 5, False, None])
def test_a_block_that_is_not_a_mapping_is_a_fault(block: object) -> None:
    assert fault(block).startswith("bench: must be a mapping, not ")


def test_every_fault_is_listed_at_once() -> None:
    block = {
        "colections": {},
        "collections": {
            "Core": {"members": ["gpt"]},
            "pair": {"members": ["gpt", "cloude"], "reply": "al", "tags": ["A"], "explorers": 9, "shape": "reviews"},
            "nested": {"members": ["bench/pair"], "merget": "gpt"},
        },
        "timing": {"seat_timeout": float("nan")},
        "models": {"gtp": {}, "gpt": {"rol": "code"}},
        "decision_model": "gbt",
        7: "seven",
    }
    paths = [
        "bench.colections",
        "bench.collections.Core",
        "bench.collections.pair.members.1",
        "bench.collections.pair.reply",
        "bench.collections.pair.tags.0",
        "bench.collections.pair.explorers",
        "bench.collections.pair.shape",
        "bench.collections.nested.members.0",
        "bench.collections.nested.merget",
        "bench.timing.seat_timeout",
        "bench.models.gtp",
        "bench.models.gpt.rol",
        "bench.decision_model",
        "bench.7",
    ]
    assert sorted(f.partition(": ")[0] for f in faults(block)) == sorted(paths)


NAMES = ("collections", "members", "core", "explorers", "shape", "models", "gpt", "limits", "max_calls", "route", "x")
KEYS = st.sampled_from(NAMES) | st.integers(0, 2) | st.none()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(NAMES) | st.text(max_size=4)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))


@given(VALUES | st.dictionaries(st.sampled_from([*Config.model_fields, 1]), VALUES))
def test_whatever_yaml_holds_is_a_config_or_a_list_of_faults(block: object) -> None:
    with suppress(ConfigError):
        assert isinstance(parse(block, "file", models=MODELS), Config)


def test_what_a_faulty_section_makes_impossible_is_not_guessed() -> None:
    block = core(explorers=3, shape="legal") | {"limits": {"max_explorers": "x"}, "shapes": {"legal": ["generl"]}}
    assert [f.partition(": ")[0] for f in faults(block)] == ["bench.limits.max_explorers", "bench.shapes.legal.0"]


def test_the_error_says_the_file_the_number_of_faults_and_each_of_them() -> None:
    with pytest.raises(ConfigError) as raised:
        parse({"xyzzy": 1, "plugh": 2}, "conf/litellm.yaml")
    assert str(raised.value).splitlines() == [
        "conf/litellm.yaml: 2 faults in the bench configuration",
        "  bench.xyzzy: unknown key",
        "  bench.plugh: unknown key",
    ]


# What it holds


def test_defaults_are_those_of_the_rules() -> None:
    config = parse({"collections": {"core": {"members": ["gpt"]}}, "models": {"gpt": {}}}, "file")
    collection, limits, timing = config.collections["core"], config.limits, config.timing
    assert (collection.reply, collection.stream, collection.on_disconnect) == ("all", "seats", "finish")
    assert (collection.shape, collection.merger, collection.quorum, collection.deadline) == ("", "", 0, 0)
    assert config.explorers_of("core") == 2
    assert (limits.max_calls, limits.max_explorers, limits.max_body_mb, limits.concurrent_panels) == (5, 2, 20, 0)
    assert (timing.seat_timeout, timing.explorer_grace, timing.keep_alive, timing.first_piece) == (300, 15, 10, 90)
    assert (timing.turn, timing.hold_status, timing.sticky_idle) == (600, 15, 3600)
    assert (config.models["gpt"].role, config.models["gpt"].explore) == ("general", True)
    assert (config.route.explore_share, config.route.attempts, config.route.shadow) == (0.25, 3, 0)
    assert (config.ledger.url, config.ledger.keep_days, config.ledger.content) == ("sqlite:///bench.db", 0, "full")
    assert (config.access.require_key, config.access.allowed_origins) == (False, ())


def test_built_in_shapes_admit_the_roles_of_the_rules() -> None:
    assert BUILT_IN_SHAPES == {
        "general": ("general",),
        "design": ("general",),
        "prose": ("general",),
        "review": ("general", "code"),
        "code": ("general", "code"),
        "enumeration": ("general", "code", "light"),
        "quick": ("general", "light"),
        "vision": ("general", "light", "vision"),
    }


def test_a_collections_own_number_of_explorers_wins_also_when_it_is_none() -> None:
    assert parse(core(explorers=0), "file").explorers_of("core") == 0


def test_the_body_limit_is_in_binary_megabytes() -> None:
    assert parse({"limits": {"max_body_mb": 1.5}}, "file").limits.max_body_bytes == 1_572_864


@pytest.mark.parametrize(
    "section", ["", "limits", "timing", "route", "ledger", "access", "collections.core", "models.gpt"]
)
def test_a_config_cannot_be_changed_once_it_is_parsed(section: str) -> None:
    part: Any = parse(core() | {"models": {"gpt": {}}}, "file")
    for name in filter(None, section.split(".")):
        part = part[name] if isinstance(part, dict) else getattr(part, name)
    field = next(iter(type(part).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(part, field, getattr(part, field))


# Where it is read from


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file") as raised:
        load(tmp_path / "litellm.yaml")
    assert raised.value.source == str(tmp_path / "litellm.yaml")


@pytest.mark.parametrize("text", [b"bench: {collections: [", b"bench: !!python/object:os.system x", b"bench: \xff\xfe"])
def test_text_that_is_not_plain_yaml_is_a_fault(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "litellm.yaml"
    file.write_bytes(text)
    with pytest.raises(ConfigError, match="is not valid YAML"):
        load(file)


def test_a_file_that_is_not_a_mapping_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be a mapping, not a list"):
        load(write(tmp_path / "litellm.yaml", ["gpt"]))


@pytest.mark.parametrize("block", [[], "", False, 0, "core"])
def test_a_block_of_the_file_that_is_not_a_mapping_is_a_fault(tmp_path: Path, block: object) -> None:
    with pytest.raises(ConfigError, match="bench: must be a mapping"):
        load(write(tmp_path / "litellm.yaml", litellm("gpt", bench=block)))


@pytest.mark.parametrize("document", [litellm("gpt"), litellm("gpt", bench=None), {}])
def test_no_block_is_an_empty_one(tmp_path: Path, document: Json) -> None:
    config, _ = load(write(tmp_path / "litellm.yaml", document))
    assert config == Config()


def test_the_block_stands_in_litellms_own_file(tmp_path: Path) -> None:
    file = write(tmp_path / "litellm.yaml", litellm("gpt", bench=core()))
    config, source = load(file)
    assert list(config.collections) == ["core"]
    assert source == Source(file, file)


@pytest.mark.parametrize("bare", [True, False])
def test_the_block_may_stand_in_a_file_of_its_own_relative_to_litellms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bare: bool
) -> None:
    monkeypatch.chdir("/")
    block = write(tmp_path / "conf" / "bench.yaml", core() if bare else {"bench": core()})
    file = write(tmp_path / "litellm.yaml", litellm("gpt", bench={"file": "conf/bench.yaml"}))
    config, source = load(file)
    assert list(config.collections) == ["core"]
    assert source == Source(file, block)


def test_faults_of_a_file_of_its_own_are_named_by_that_file_and_the_path_in_it(tmp_path: Path) -> None:
    block = write(tmp_path / "bench.yaml", core(members=["cloude"]))
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path / "litellm.yaml", litellm("claude", bench={"file": "bench.yaml"})))
    assert raised.value.source == str(block)
    assert raised.value.faults == ('collections.core.members.0: LiteLLM has no model "cloude"; did you mean "claude"?',)


def test_a_file_of_its_own_that_is_not_there_is_a_fault_under_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        load(write(tmp_path / "litellm.yaml", litellm("gpt", bench={"file": "bench.yaml"})))
    assert raised.value.source == str(tmp_path / "bench.yaml")


def test_bench_config_wins_over_the_block_of_litellms_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    override = write(tmp_path / "elsewhere" / "bench.yaml", {"bench": core()})
    file = write(tmp_path / "litellm.yaml", litellm("gpt", bench={"collections": {"other": {"members": ["nobody"]}}}))
    monkeypatch.setenv("BENCH_CONFIG", str(override))
    config, source = load(file, override=environment().bench_config)
    assert list(config.collections) == ["core"]
    assert source == Source(file, override)


def test_a_file_that_litellms_file_includes_is_watched_too(tmp_path: Path) -> None:
    included = write(tmp_path / "models.yaml", litellm("gpt"))
    file = write(
        tmp_path / "litellm.yaml",
        {"include": ["models.yaml"], "bench": {"collections": {"core": {"members": ["gpt"]}}}},
    )
    _, source = load(file)
    assert source.included == (included,)
    before = source.stamp()
    write(included, litellm("gpt", "claude"))
    assert source.stamp() != before


def test_bench_config_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(write(tmp_path / "litellm.yaml", litellm("gpt")), override=tmp_path / "bench.yaml")


def test_an_empty_variable_is_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_CONFIG", "")
    monkeypatch.setenv("LITELLM_MASTER_KEY", "")
    assert environment().bench_config is None
    assert not environment().master_key


def test_a_source_notices_a_changed_file_and_a_swapped_symlink(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.yaml", core()), write(tmp_path / "b.yaml", core())
    link = tmp_path / "bench.yaml"
    link.symlink_to(first)
    source = Source(write(tmp_path / "litellm.yaml", litellm("gpt")), link)
    before = source.stamp()
    assert source.stamp() == before
    link.unlink()
    link.symlink_to(second)
    swapped = source.stamp()
    assert swapped != before
    second.write_text("collections: {}", encoding="utf-8")
    assert source.stamp() != swapped


# Which models LiteLLM serves


def test_a_wildcard_serves_every_model_that_it_matches(tmp_path: Path) -> None:
    block = core(members=["openai/gpt-4o", "gpt"])
    assert load(write(tmp_path / "litellm.yaml", litellm("gpt", "openai/*", bench=block)))
    with pytest.raises(ConfigError, match="anthropic/claude"):
        load(write(tmp_path / "litellm.yaml", litellm("gpt", "openai/*", bench=core(members=["anthropic/claude"]))))


def test_models_of_included_files_count_also_of_files_that_those_include(tmp_path: Path) -> None:
    write(tmp_path / "more" / "models.yaml", litellm("claude", include=["local.yaml", "../litellm.yaml"]))
    write(tmp_path / "more" / "local.yaml", litellm("local-qwen"))
    block = core(members=["gpt", "claude", "local-qwen"])
    file = write(tmp_path / "litellm.yaml", litellm("gpt", include=["more/models.yaml"], bench=block))
    assert load(file)[0].collections["core"].members == ("gpt", "claude", "local-qwen")


def test_an_included_file_that_is_not_there_is_a_fault_under_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        load(write(tmp_path / "litellm.yaml", litellm("gpt", include=["models.yaml"], bench=core())))
    assert raised.value.source == str(tmp_path / "models.yaml")


@pytest.mark.parametrize("include", ["models.yaml", {"models.yaml": 1}, 5, [5]])
def test_an_include_that_is_not_a_list_of_files_is_a_fault(tmp_path: Path, include: object) -> None:
    with pytest.raises(ConfigError, match="include: must be a list of files"):
        load(write(tmp_path / "litellm.yaml", litellm("gpt", include=include, bench=core())))


def test_an_alias_of_litellms_router_is_a_model(tmp_path: Path) -> None:
    router = {"model_group_alias": {"best": "gpt"}}
    assert load(write(tmp_path / "litellm.yaml", litellm("gpt", router_settings=router, bench=core(members=["best"]))))


def test_with_models_in_litellms_database_names_are_not_checked(tmp_path: Path) -> None:
    general = {"store_model_in_db": True}
    file = write(tmp_path / "litellm.yaml", litellm("gpt", general_settings=general, bench=core(members=["from-db"])))
    assert load(file)[0].collections["core"].members == ("from-db",)


def test_the_models_that_a_running_litellm_serves_are_asked_instead_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "litellm.yaml", litellm("gpt", bench=core(members=["added-later"])))
    assert load(file, models=["added-later"])
    with pytest.raises(ConfigError, match="added-later"):
        load(file)


ODD_LISTS = [
    None,
    "gpt",
    [None],
    ["gpt"],
    [{"model_name": None}],
    [{"model_name": ["gpt"]}],
    [{"model_name": "other", "litellm_params": "gpt"}],
    [{}],
]


@pytest.mark.parametrize("listed", ODD_LISTS)
def test_an_odd_model_list_is_one_without_models(tmp_path: Path, listed: object) -> None:
    with pytest.raises(ConfigError, match='LiteLLM has no model "gpt"'):
        load(write(tmp_path / "litellm.yaml", {"model_list": listed, "bench": core()}))


@pytest.mark.parametrize("aliases", [None, "best", ["best"], {"best": ["gpt"]}, {"best": {"model": ["gpt"]}}])
def test_odd_aliases_are_no_fault_of_ours(tmp_path: Path, aliases: object) -> None:
    router = {"model_group_alias": aliases}
    assert load(write(tmp_path / "litellm.yaml", litellm("gpt", router_settings=router, bench=core())))


# What else the environment says


@pytest.mark.parametrize("general", [None, {}, {"master_key": None}, {"master_key": ""}, ["master_key"]])
def test_no_master_key_is_set_when_neither_file_nor_environment_says_one(tmp_path: Path, general: object) -> None:
    assert not master_key_set(write(tmp_path / "litellm.yaml", litellm("gpt", general_settings=general)))


def test_a_master_key_may_stand_in_the_file(tmp_path: Path) -> None:
    assert master_key_set(write(tmp_path / "litellm.yaml", litellm(general_settings={"master_key": "sk-file"})))


def test_a_master_key_may_stand_in_an_included_file(tmp_path: Path) -> None:
    write(tmp_path / "secret.yaml", {"general_settings": {"master_key": "sk-included"}})
    assert master_key_set(write(tmp_path / "litellm.yaml", litellm("gpt", include=["secret.yaml"])))


def test_a_master_key_may_be_a_reference_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "litellm.yaml", litellm(general_settings={"master_key": "os.environ/PROXY_KEY"}))
    assert not master_key_set(file)
    monkeypatch.setenv("PROXY_KEY", "sk-referred")
    assert master_key_set(file)


def test_a_master_key_may_be_in_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-environment")
    assert master_key_set(write(tmp_path / "litellm.yaml", litellm("gpt")))


def test_the_commands_reach_the_proxy_with_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (environment().url, environment().key) == ("http://127.0.0.1:4000", "")
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")
    assert environment().key == "sk-master"
    monkeypatch.setenv("BENCH_KEY", "sk-mine")
    monkeypatch.setenv("BENCH_URL", "https://bench.example.org")
    assert (environment().url, environment().key) == ("https://bench.example.org", "sk-mine")


def test_the_nearest_name_is_found_whatever_its_case_and_keeps_its_own() -> None:
    assert closest("gpt-4O", ["Claude", "GPT-4o"]) == '; did you mean "GPT-4o"?'
    assert closest("zebra", ["Claude", "GPT-4o"]) == ""
