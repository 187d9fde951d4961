"""The run's header and its log in Chromium, fed by a small server that speaks the live channel's protocol."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.dashboard.components.charts_page import Show, server, show
from tests.dashboard.components.clipboards import clipboard
from tests.dashboard.live_server import FakeServer, Message, falling, run_view, series
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

__all__ = ["server", "show"]

PLACES = "figures => figures.map(one => [one.getBoundingClientRect().x, one.getBoundingClientRect().y])"


def figure(page: Page, label: str) -> Locator:
    return page.locator(".figure", has=page.get_by_text(label, exact=True)).locator("dd:not(.more)")


def log(text: str, offset: int = 0, reset: bool = False, **changes: Any) -> Message:
    message = {"type": "log", "rank": 0, "stream": "out", "attempt": 1, "offset": offset, "text": text}
    return {**message, "reset": reset, **changes}


def test_the_header_shows_the_figures_humanised_with_exact_values_on_hover(server: FakeServer, show: Show) -> None:
    page = show("run_header")
    expect(page.locator(".name")).to_have_text("digits-resnet18")
    expect(page.locator(".name")).to_have_attribute("dir", "auto")  # one in Arabic is cut off at its end
    expect(page.locator(".pill").first).to_have_text("running")
    expect(figure(page, "Samples/s")).to_have_text("12.4 k")
    expect(page.locator(".figure", has_text="Samples/s")).to_have_attribute("title", "now 12431, on average 12011.5")
    expect(figure(page, "ETA")).to_have_text("00:25:03")
    expect(page.locator(".figure:visible")).to_have_count(7)
    first = figure(page, "Elapsed").inner_text()
    wait_for(lambda: figure(page, "Elapsed").inner_text() != first, "the elapsed time to tick")
    server.send(series("train/loss", [[813, 0.5, time.time()]], reset=False))
    expect(figure(page, "Step")).to_have_text("813")
    expect(figure(page, "Train loss")).to_have_text("0.5")


def test_figures_that_were_only_printed_say_so(server: FakeServer, show: Show) -> None:
    against = {
        "run_id": "base000000",
        "name": "base",
        "metric": "val/loss",
        "value": 0.18234,
        "baseline_value": 0.19,
    }
    run = run_view(epoch=0, current_epoch=1, total_epochs=8, last_lr=0.1, inferred=["epoch", "last_lr"])
    server.picture = [{**run, "run": {**run["run"], "against_baseline": {**against, "better_percent": 4.03}}}]
    page = show("run_header")
    expect(figure(page, "Epoch")).to_have_text("1")
    expect(page.locator(".figure", has_text="Epoch").locator(".more")).to_have_text("of 8")
    expect(page.locator(".against")).to_have_text("val/loss 0.1823, 4 % better than baseline")
    expect(page.locator(".against a")).to_have_attribute(
        "href", re.compile(r"compare\?runs=.+,base000000&baseline=base")
    )
    expect(figure(page, "Learning rate")).to_have_text("0.1")
    rate = page.locator(".figure", has_text="Learning rate")
    expect(rate).to_have_attribute("title", "0.1: parsed from what the script prints")
    expect(rate.locator(".more")).to_have_text("from the output")
    server.send(run_view(epoch="NaN", last_lr="Infinity", inferred=[]))
    expect(figure(page, "Learning rate")).to_have_text("∞")
    expect(rate).not_to_have_attribute("title", re.compile("parsed"))


def test_a_figure_appears_when_it_is_known_and_moves_no_other(server: FakeServer, show: Show) -> None:
    server.picture = [run_view(epoch=None, eta_s=None, throughput=None)]
    page = show("run_header")
    expect(figure(page, "Elapsed")).to_be_visible()
    for label in ("Epoch", "ETA", "Samples/s"):
        expect(figure(page, label)).to_be_hidden()
    places = page.locator(".figure:visible").evaluate_all(PLACES)
    server.send(run_view(epoch=2, eta_s=60, throughput=12.0))
    expect(figure(page, "ETA")).to_be_visible()
    assert page.locator(".figure:visible").evaluate_all(PLACES)[: len(places)] == places


def test_the_title_is_the_runs_name_before_anything_is_known_of_it(server: FakeServer, show: Show) -> None:
    server.picture = []
    page = show("run_header")
    expect(page.locator(".run-header.unknown .name")).to_have_text("digits-resnet18")


def test_a_run_that_waits_says_why_and_when_it_will_start(server: FakeServer, show: Show) -> None:
    why = "needs 16 GPUs on 2 nodes, 8 are free; 7f3k on gpu-2 ends in about 25 min"
    start = time.time() + 1500
    server.picture = [run_view(state="queued", waiting_for=why, expected_start_at=start)]
    page = show("run_header")
    clock = page.evaluate(f"new Date({start * 1000}).toLocaleTimeString([], {{ timeStyle: 'short' }})")
    expect(page.locator(".sentence")).to_contain_text(f"Waiting: {why}. Expected to start about ")
    expect(page.locator(".sentence")).to_contain_text(clock)
    server.send(run_view(state="queued", waiting_for=why, expected_start_at=None))
    expect(page.locator(".sentence")).to_have_text(f"Waiting: {why}.")


def test_a_stop_counts_down_to_the_kill(server: FakeServer, show: Show) -> None:
    now = time.time()
    server.picture = [run_view(state="stopping", stop_requested_at=now - 5, kill_at=now + 900) | {"now": now}]
    page = show("run_header")
    sentence = page.locator(".sentence")
    left = re.compile(r"^Stopping: SIGTERM sent, [1-8]\d\d s until its ranks are killed\.$")
    expect(sentence).to_have_text(left)
    waits = "waits for gpu-2, which has been silent for 14 s"
    server.send(run_view(state="stopping", stop_requested_at=now - 60, kill_at=now - 30, waiting_for=waits))
    expect(sentence).to_have_text(f"Stopping: the grace period is over, its ranks are being killed; it {waits}.")


def test_an_end_by_the_runs_policy_says_why(server: FakeServer, show: Show) -> None:
    now = time.time()
    why = "The node gpu-2 was lost (silent for 31 s), and the ranks on gpu-1 have made no step for 30 s."
    ending = run_view(nodes=2, message=why, kill_at=now + 900, waiting_for="waits for gpu-1")
    server.picture = [run_view(nodes=2, lost_contact=True, silent_nodes=["gpu-2"]) | {"now": now}]
    page = show("run_header")
    expect(page.locator(".sentence")).to_contain_text("No contact with gpu-2 for more than 10 s.")
    server.send(ending)
    expect(page.locator(".sentence")).to_contain_text(f"{why} Ending it: SIGTERM sent, ")
    expect(page.locator(".sentence")).to_contain_text("s until its ranks are killed; it waits for gpu-1.")


def test_text_of_people_is_never_markup(server: FakeServer, show: Show) -> None:
    evil = "<img src=x onerror=\"document.body.dataset.broken='yes'\">"
    server.picture = [run_view(name=evil, state="failed", message=evil), series(f"train/{evil}", falling(3))]
    server.log_picture = lambda choice: [log(evil, reset=True)]
    page = show("run_header,charts,log_view")
    expect(page.locator(".name")).to_have_text(evil)
    expect(page.locator(".sentence")).to_have_text(evil)
    expect(page.locator(".card")).to_have_count(1)
    expect(page.locator("img")).to_have_count(0)
    expect(page.locator("body[data-broken]")).to_have_count(0)


def test_a_failure_says_why_and_below_it_what_to_try(server: FakeServer, show: Show) -> None:
    why, step = "rank 1 on gpu-1: CUDA out of memory, train.py line 41", "Halve the batch per GPU: 32 → 16."
    server.picture = [run_view(state="failed", message=why, next_step=step)]
    page = show("run_header")
    expect(page.locator(".sentence")).to_have_text(why)
    expect(page.locator(".next")).to_have_text(step)
    server.send(run_view(state="failed", message=why, next_step=None))
    expect(page.locator(".next")).to_be_hidden()


def test_silence_of_a_node_is_a_flag_beside_the_state(server: FakeServer, show: Show) -> None:
    server.picture = [run_view(lost_contact=True, silent_s=34.2)]
    page = show("run_header")
    expect(page.locator(".pill")).to_have_text(["running", "no contact for 34 s"])


def test_a_run_that_needs_a_person_is_not_simply_running(server: FakeServer, show: Show) -> None:
    finding = "hung: no step for 90 s, rank 1 is behind"
    server.picture = [run_view(attention="hung", finding=finding)]
    page = show("run_header")
    pill = page.locator(".pill").first
    expect(pill).to_have_text("running · hung")
    expect(pill).to_have_class("pill grave")
    expect(pill).to_have_attribute("title", finding)
    server.send(run_view(attention="NaN loss", last_loss="NaN"))
    expect(pill).to_have_text("running · NaN loss")
    expect(pill).not_to_have_attribute("title", finding)
    server.send(run_view(attention="no contact", lost_contact=True, silent_s=34.2))
    expect(page.locator(".pill:visible")).to_have_text(["running · no contact for 34 s"])
    expect(pill).to_have_class("pill warn")
    server.send(run_view(state="stopping", attention="hung", lost_contact=True, silent_s=34.2))
    expect(page.locator(".pill:visible")).to_have_text(["stopping · hung", "no contact for 34 s"])
    server.send(run_view(state="failed", attention="failed"))
    expect(page.locator(".pill:visible")).to_have_text(["failed"])
    expect(pill).to_have_class("pill failed")
    server.send(run_view(state="succeeded", attention="NaN loss"))
    expect(pill).to_have_text("succeeded · NaN loss")
    server.send(run_view())
    expect(pill).to_have_class("pill running")


def test_what_is_still_sent_after_the_end_stands_beside_the_state(server: FakeServer, show: Show) -> None:
    delivery = {"silent_nodes": [], "has_points": False, "sentence": "sending what is left: 0.8 of 1.0 GiB, 3 min"}
    message = "rank 1 on gpu-1: ValueError: bad label 17"
    server.picture = [run_view(state="failed", message=message, delivery=delivery)]
    page = show("run_header")
    expect(page.locator(".pill:visible")).to_have_text(["failed"])
    expect(page.locator(".sentence")).to_have_text(message)
    expect(page.locator(".sending")).to_have_text(delivery["sentence"])
    server.send(run_view(state="failed", message=message, delivery=None))
    expect(page.locator(".sending")).to_be_hidden()


def test_a_log_is_followed_with_colours_and_collapsed_progress_bars(server: FakeServer, show: Show) -> None:
    server.log_picture = lambda choice: [log("first\n\x1b[31mred\x1b[0m <b>\n10%\r50%", reset=True)]
    page = show("log_view")
    lines = page.locator(".text")
    expect(lines).to_have_text(["first", "red <b>", "50%"])
    expect(page.locator(".ansi-red")).to_have_text("red")
    server.send(log("\r100%\r\nnext\x1b[K\n", 30))
    expect(lines).to_have_text(["first", "red <b>", "100%", "next"])
    server.send(log("x" * 70_000 + "\nend", 60))
    expect(page.locator(".cut")).to_contain_text("cut, 4.36 KiB more")


def test_following_ends_when_somebody_scrolls_up_and_begins_again_at_the_end(server: FakeServer, show: Show) -> None:
    server.log_picture = lambda choice: [log("".join(f"line {i}\n" for i in range(1000)), reset=True)]
    page = show("log_view")
    follow = page.get_by_role("button", name="Follow")
    expect(page.locator(".text").last).to_be_in_viewport()
    page.locator(".pane").hover()
    page.mouse.wheel(0, -2000)
    expect(follow).to_have_attribute("aria-pressed", "false")
    height = scroll_height(page)
    server.send(log("one more\n", 9000))
    expect(page.locator(".text").last).to_have_text("one more")
    expect(page.locator(".text").last).not_to_be_in_viewport()
    # A line that is not laid out yet takes its height all the same, so that the end stays where it is.
    assert scroll_height(page) == height + 18
    page.mouse.wheel(0, 100_000)
    expect(follow).to_have_attribute("aria-pressed", "true")
    server.send(log("and more\n", 9010))
    expect(page.locator(".text").last).to_have_text("and more")
    expect(page.locator(".text").last).to_be_in_viewport()


def scroll_height(page: Page) -> int:
    height: int = page.locator(".pane").evaluate("pane => pane.scrollHeight")
    return height


def test_a_flood_of_lines_keeps_the_last_five_thousand(server: FakeServer, show: Show) -> None:
    page = show("log_view")
    expect(page.locator(".log-empty")).to_have_text("Nothing on stdout yet.")
    for start in range(0, 20_000, 2_000):
        server.send(log("".join(f"line {i}\n" for i in range(start, start + 2_000)), start))
    expect(page.locator(".text").last).to_have_text("line 19999")
    shown = page.locator(".text").count()
    assert 4_000 < shown <= 5_000
    assert page.locator(".text").first.text_content() == f"line {20_000 - shown}"


def test_earlier_lines_are_loaded_on_request_and_join_without_a_seam(server: FakeServer, show: Show) -> None:
    server.log_file = b"".join(b"line %d\n" % i for i in range(200))
    cut = server.log_file.index(b"line 150") + 3
    server.log_picture = lambda choice: [log(server.log_file[cut:].decode(), offset=cut, reset=True)]
    page = show("log_view")
    expect(page.locator(".text").first).to_have_text("e 150")
    page.get_by_role("button", name="Load earlier lines").click()
    expect(page.locator(".text")).to_have_count(200)
    expect(page.locator(".text").nth(150)).to_have_text("line 150")
    expect(page.get_by_role("button", name="Load earlier lines")).to_be_hidden()


def test_lines_that_following_dropped_are_loaded_again_without_a_gap(server: FakeServer, show: Show) -> None:
    lines = [f"line {i} é\n" for i in range(8_000)]
    server.log_file = "".join(lines).encode()
    page = show("log_view")
    expect(page.locator(".log-empty")).to_have_text("Nothing on stdout yet.")
    for start in range(0, 8_000, 1_000):  # pieces that begin in mid-line
        sent = "".join(lines[start : start + 1_000])
        at = len("".join(lines[:start]).encode())
        head, tail = sent[:4], sent[4:]
        server.send(log(head, at))
        server.send(log(tail, at + len(head)))
    expect(page.locator(".text").last).to_have_text("line 7999 é")
    kept = page.locator(".text").count()
    assert kept <= 5_000
    page.locator(".pane").hover()
    page.mouse.wheel(0, -1_000_000)
    page.get_by_role("button", name="Load earlier lines").click()
    expect(page.locator(".text")).to_have_count(8_000)
    shown = page.locator(".text").all_text_contents()
    assert shown == [line.rstrip() for line in lines]
    expect(page.get_by_role("button", name="Load earlier lines")).to_be_hidden()


def test_the_log_is_read_from_its_beginning_to_its_end(server: FakeServer, show: Show) -> None:
    lines = [f"{'é' * 60} line {i}" for i in range(5_000)]  # 256 KiB end within a letter
    server.log_file = "\n".join(lines).encode() + b"\n"
    server.log_picture = lambda choice: [log("the end\n", offset=600_000, reset=True)]
    page = show("log_view")
    expect(page.locator(".text")).to_have_text(["the end"])
    page.get_by_role("button", name="Beginning").click()
    expect(page.locator(".text.chosen")).to_have_text(lines[0])
    later = page.get_by_role("button", name="Load later lines")
    shown = page.locator(".text").count()
    later.click()
    expect(page.locator(".text")).not_to_have_count(shown)
    assert page.locator(".text").count() > shown + 1000
    expect(later).to_be_visible()
    expect(page.locator(".text").nth(shown - 1)).to_be_in_viewport()  # where the reader was
    later.click()
    expect(page.locator(".text")).to_have_count(5_000)
    assert page.locator(".text").all_text_contents() == lines
    assert page.locator(".text").last.get_attribute("data-line") == "5000"
    expect(later).to_be_hidden()


def test_another_rank_and_stream_are_asked_for(server: FakeServer, show: Show) -> None:
    def picture(choice: Message) -> list[Message]:
        return [log(f"{choice['rank']}\nof {choice['stream']}\n", reset=True) | choice | {"attempt": 1}]

    server.log_picture = picture
    page = show("log_view")
    page.get_by_label("Rank").select_option("rank 3")
    page.get_by_label("Stream").select_option("stderr")
    expect(page.locator(".text")).to_have_text(["3", "of err"])
    assert server.said[-1]["logs"] == {"rank": 3, "stream": "err", "attempt": None}
    href = page.get_by_role("link", name="Download log").get_attribute("href")
    assert href is not None
    assert href.endswith("/logs?rank=3&stream=err")
    page.get_by_label("Rank").select_option("launcher")
    expect(page.locator(".text").first).to_have_text("launcher")


def test_a_failed_run_opens_at_the_failing_ranks_own_words(server: FakeServer, show: Show) -> None:
    server.picture = [run_view(state="failed", message="Rank 2 raised ValueError.", error={"rank": 2})]
    show("log_view")
    said = server.wait_said(lambda message: (message.get("logs") or {}).get("rank") == 2)
    assert said["logs"]["stream"] == "err"


def test_the_match_that_was_chosen_last_is_shown_also_when_its_answer_comes_first(
    server: FakeServer, show: Show
) -> None:
    server.log_file = b"".join(b"%s %d\n" % (b"ERROR" if i in (10, 31_000) else b"info", i) for i in range(50_000))
    held: list[Route] = []
    page = show("log_view")
    page.get_by_label("Search the whole log").fill("error")
    expect(page.locator(".found")).to_have_text("2 lines")
    page.route("**/logs?*", lambda route: route.continue_() if held else held.append(route))
    after = page.get_by_label("Next match", exact=True)
    after.click()
    wait_for(lambda: page.wait_for_timeout(20) or held, "the first match to be asked for")
    after.click()
    expect(page.locator(".text.chosen")).to_have_text("ERROR 31000")
    with page.expect_response("**/logs?*") as late:
        held[0].continue_()
    late.value.finished()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(page.locator(".found")).to_have_text("2 of 2 lines")
    expect(page.locator(".text.chosen")).to_have_text("ERROR 31000")


def test_the_whole_log_is_searched_and_a_match_opened_copied_and_linked(server: FakeServer, show: Show) -> None:
    lines = [f"{'ERROR' if i in (10, 31_000) else 'info'} step {i}" for i in range(50_000)]
    server.log_file = "\n".join(lines).encode() + b"\n"
    tail = server.log_file.index(b"info step 48000")
    server.log_picture = lambda choice: [log(server.log_file[tail:].decode(), offset=tail, reset=True)]
    page = show("log_view")
    expect(page.locator(".text").last).to_have_text("info step 49999")
    page.get_by_label("Search the whole log").fill("error")
    expect(page.locator(".found")).to_have_text("2 lines")
    page.get_by_label("Next match", exact=True).click()
    expect(page.locator(".text.chosen")).to_have_text("ERROR step 10")
    page.get_by_label("Search the whole log").press("Enter")
    expect(page.locator(".text.chosen")).to_have_text("ERROR step 31000")
    expect(page.locator(".text.chosen")).to_be_in_viewport()
    assert page.locator(".text.chosen").get_attribute("data-line") == "31001"
    expect(page.locator(".found")).to_have_text("2 of 2 lines")
    page.get_by_label("Previous match").click()
    expect(page.locator(".text.chosen")).to_have_text("ERROR step 10")
    page.get_by_label("Search the whole log").fill("step 310")
    page.get_by_label("Search the whole log").press("Enter")  # once, before it is searched
    expect(page.locator(".text.chosen")).to_have_text("info step 310")
    page.get_by_label("Search the whole log").fill("no such")
    expect(page.locator(".found")).to_have_text("0 lines")
    page.get_by_role("button", name="First error").click()
    expect(page.locator(".text.chosen")).to_have_text("ERROR step 10")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    address = clipboard(page, "line=11")
    assert "log=0.out" in address
    page.get_by_role("button", name="Follow").click()
    expect(page.locator(".text").last).to_have_text("info step 49999")
    page.goto(address)
    expect(page.locator(".text.chosen")).to_have_text("ERROR step 10")
    expect(page.locator("body[data-broken]")).to_have_count(0)
