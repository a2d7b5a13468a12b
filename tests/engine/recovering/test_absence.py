"""Explanations of workers that do not connect: no free slot, or a network that does not let them through."""

from __future__ import annotations

from abscli.engine.losses.absence import Absent, Endpoint, explain, restoring, waiting_for

DRIVER = Endpoint("head", "10.77.0.10", 40001)
H1, H2 = Endpoint("h1", "10.77.0.11", 40011), Endpoint("h2", "10.77.0.12", 40012)
LOST = "worker 1 on h2 (process 4711) sent no heartbeat for 10 s"


KILLED = "worker 1 on h2 (process 4711) was lost"


def absent(
    number: int, at: Endpoint | None = None, *, has_slot: bool | None = True, cause: str | None = None
) -> Absent:
    title = f"worker {number}" if at is None else f"worker {number} on {at.host} (process 4711)"
    return Absent(title, at, has_slot, cause, is_unresponsive=cause == LOST)


def test_a_worker_without_a_slot_is_a_matter_of_slots() -> None:
    message, hint = explain([absent(2, has_slot=False)], DRIVER, [], 60.0)
    assert message == "worker 2 got no slot of the cluster within 60 s"
    assert hint == "use fewer --workers, or a master with more free slots"


def test_a_worker_that_has_a_slot_and_never_connected_is_a_matter_of_the_address() -> None:
    message, hint = explain([absent(1), absent(2, has_slot=None)], DRIVER, [H1], 60.0)
    assert message == (
        "worker 1 and worker 2 were started, but did not connect to the driver on head (10.77.0.10:40001) within 60 s"
    )
    assert "slots" not in hint
    assert hint == (
        "check that every host reaches 10.77.0.10, for example with `ping -c 3 10.77.0.10`; or set --advertise to the "
        "address at which workers reach the driver"
    )


def test_an_unreachable_host_is_named_with_both_ends_and_a_check() -> None:
    message, hint = explain([absent(1, H2, cause=LOST)], DRIVER, [H1], 25.0)
    assert message == (
        f"{LOST}, and no replacement connected to the driver on head (10.77.0.10:40001) within 25 s; the lost worker "
        "listened on 10.77.0.12:40012"
    )
    assert hint == (
        "check the network between head (10.77.0.10) and h2 (10.77.0.12), for example with `ping -c 3 10.77.0.12` on "
        "head"
    )


def test_a_driver_without_any_worker_is_itself_suspected() -> None:
    lost = [absent(0, H1, cause="worker 0 on h1 (process 1) sent no heartbeat for 10 s"), absent(1, H2, cause=LOST)]
    _, hint = explain(lost, DRIVER, [], 25.0)
    assert hint == (
        "no worker is connected: check the network of head (10.77.0.10), which has lost h1 (10.77.0.11) and h2 "
        "(10.77.0.12), for example with `ping -c 3 10.77.0.11` on head"
    )


def test_a_replacement_without_a_slot_is_a_matter_of_slots() -> None:
    message, hint = explain([absent(1, H2, has_slot=False, cause=KILLED)], DRIVER, [H1], 25.0)
    assert message == f"{KILLED}, and its replacement got no slot of the cluster within 25 s"
    assert hint == "use fewer --workers, or a master with more free slots"


def test_a_slot_that_an_unreachable_host_keeps_is_a_matter_of_the_network() -> None:
    message, hint = explain([absent(1, H2, has_slot=False, cause=LOST)], DRIVER, [H1], 25.0)
    assert message.startswith(f"{LOST}, and no replacement connected to the driver on head (10.77.0.10:40001) within")
    assert hint == (
        "check the network between head (10.77.0.10) and h2 (10.77.0.12), for example with `ping -c 3 10.77.0.12` on "
        "head; a replacement needs a free slot on another host"
    )


def test_workers_without_slots_and_unreachable_workers_are_both_explained() -> None:
    message, hint = explain([absent(1, H2, cause=LOST), absent(2, has_slot=False)], DRIVER, [H1], 25.0)
    assert "no replacement connected to the driver" in message
    assert "worker 2 got no slot" in message
    assert hint.startswith("check the network between head (10.77.0.10) and h2 (10.77.0.12)")
    assert hint.endswith("; use fewer --workers, or a master with more free slots")


def test_a_wait_says_what_is_missing() -> None:
    assert restoring(["worker 1 on h2 (process 4711)"]) == (
        "worker 1 on h2 (process 4711) has not restored all tasks from the store"
    )
    assert waiting_for([absent(1, has_slot=False)], DRIVER) == "worker 1 waits for a free slot of the cluster"
    assert waiting_for([absent(1, H2, cause=LOST)], DRIVER) == (
        "the replacement of worker 1 on h2 (process 4711) has not connected to the driver on head (10.77.0.10:40001)"
    )
