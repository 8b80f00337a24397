"""A thread that decodes a Struct while another one makes the first decoder of it.

With msgspec's own functions the process ends with SIGSEGV. So each case runs in a process of its own.
"""

import subprocess
import sys

import pytest

from rebalancer.model.notation.decoding import json_decoder, msgpack_decoder, new_json_decoder

PROGRAM = """
import sys
from threading import Event, Thread

import msgspec

from rebalancer.model.notation.decoding import convert, json_decoder, msgpack_decoder, new_json_decoder

begun, decoded = Event(), Event()


def number():
    # msgspec evaluates the annotation below in the middle of its work on Outer
    begun.set()
    decoded.wait(0.5)
    return int


class Inner(msgspec.Struct):
    value: "number()"


class Outer(msgspec.Struct):
    inner: Inner


PLAIN = {"inner": {"value": 7}}
JSON, MSGPACK = msgspec.json.encode(PLAIN), msgspec.msgpack.encode(PLAIN)


def decode():
    return DECODE


def second():
    begun.wait()
    assert decode() == Outer(Inner(7))
    decoded.set()


threads = [Thread(target=second), Thread(target=decode)]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit(0 if decoded.is_set() else 1)
"""
WAYS = {
    "json": "json_decoder(Outer).decode(JSON)",
    "json, not kept": "new_json_decoder(Outer).decode(JSON)",
    "MessagePack": "msgpack_decoder(Outer).decode(MSGPACK)",
    "plain data": "convert(PLAIN, Outer)",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_second_thread_waits_until_a_struct_is_prepared(way: str) -> None:
    program = PROGRAM.replace("DECODE", WAYS[way])
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_a_decoder_is_made_once() -> None:
    assert json_decoder(list[int]) is json_decoder(list[int])
    assert msgpack_decoder(list[int]) is msgpack_decoder(list[int])
    assert new_json_decoder(list[int]) is not new_json_decoder(list[int])
