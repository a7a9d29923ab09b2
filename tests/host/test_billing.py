"""Who pays for what a context goes on to call."""

from contextvars import copy_context

from bench_proxy.host.billing import charge, payer


def test_a_caller_without_a_name_does_not_charge_the_one_before() -> None:
    """As with two requests on one connection, of which the second was sent before the first was answered."""

    def both() -> None:
        charge({"user_api_key": "hash-of-a-key", "user_api_key_team_id": "team", "unrelated": 1})
        assert payer()["user_api_key"] == "hash-of-a-key"
        assert "unrelated" not in payer()
        charge({"user_api_key": None})
        assert payer() == {}

    copy_context().run(both)
    assert payer() == {}
