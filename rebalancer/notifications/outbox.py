"""The queue of notifications: filled by the daemon's threads, sent by one of its own."""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from rebalancer.model.errors import RebalancerError
from rebalancer.model.records.notifications import Notification
from rebalancer.notifications.sending import send
from rebalancer.policy.schema.notifications import Receiver

LOG = structlog.get_logger("rebalancer")
MAX_WAITING = 100
POLL_SECONDS = 1.0
SENT, FAILED, DROPPED = "sent", "failed", "dropped"


@dataclass(slots=True)
class Outbox:
    """Notifications that wait for their receivers, so that a slow one never delays a cycle. Of more than `MAX_WAITING`
    the oldest is dropped."""

    receivers: Callable[[], Sequence[Receiver]]
    """Those of the active policy."""
    count: Callable[[str, str], None]
    """Takes a receiver's name and a result."""
    stopping: threading.Event
    """After it nothing more is sent."""
    _waiting: queue.Queue[tuple[Receiver, Notification]] = field(default_factory=partial(queue.Queue, MAX_WAITING))

    def put(self, notifications: Iterable[Notification]) -> None:
        """Queue notifications for the receivers that want them. Never waits."""
        for each in notifications:
            for receiver in self.receivers():
                if each.event in receiver.events and not (each.repeated and receiver.alertmanager is None):
                    self._put(receiver, each)

    def run(self) -> None:
        """Send what waits until the program stops."""
        while not self.stopping.is_set():
            self.send_waiting(POLL_SECONDS)

    def send_waiting(self, seconds: float) -> None:
        """Wait up to `seconds` for a notification, then send all that wait. Once the program stops they are dropped.
        Never raises for a receiver."""
        try:
            receiver, notification = self._waiting.get(timeout=seconds)
            while True:
                self._send(receiver, notification)
                receiver, notification = self._waiting.get_nowait()
        except queue.Empty:
            return

    def _put(self, receiver: Receiver, notification: Notification) -> None:
        while True:
            try:
                self._waiting.put_nowait((receiver, notification))
                return
            except queue.Full:
                try:
                    oldest, _ = self._waiting.get_nowait()
                except queue.Empty:
                    continue
                self.count(oldest.name, DROPPED)

    def _send(self, receiver: Receiver, notification: Notification) -> None:
        if self.stopping.is_set():
            self.count(receiver.name, DROPPED)
            return
        try:
            send(receiver, notification, self.stopping)
        except RebalancerError as error:
            LOG.warning("notification not sent", title=notification.title, error=str(error))
            self.count(receiver.name, FAILED)
        except Exception:  # a defect: its trace is logged, and the other receivers go on
            LOG.exception("notification not sent", receiver=receiver.name)
            self.count(receiver.name, FAILED)
        else:
            self.count(receiver.name, SENT)
