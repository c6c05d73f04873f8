"""Two processes show each other over TCP that they know the secret of their run, before either obeys the other.

recorder     agent
Challenge ->            a number that is used once
          <- Response   another one, and a proof over both
Proof     ->            the recorder's own

An agent runs the commands that the recorder sends. The secret is the value of $BENCHSUITE_JOIN_SECRET. The environment
of a process is hidden from other users, unlike its command line. The secret never goes over the network. Without the
variable the secret is empty, which keeps out no one. What follows the handshake is neither encrypted nor signed.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Callable

from benchsuite.cluster.link import Link, LinkError
from benchsuite.cluster.messages import Challenge, FromRecorder, Proof, Refused, Response
from benchsuite.describe.variables import JOIN_SECRET
from benchsuite.errors import UsageError

_REMEDY = f"give all processes the same {JOIN_SECRET}"


def _proof(by: str, challenge: str, response: str) -> str:
    key = os.environ.get(JOIN_SECRET, "").encode(errors="surrogateescape")
    return hmac.new(key, f"{by} {challenge} {response}".encode(), "sha256").hexdigest()


def challenge() -> Challenge:
    """The first message of a recorder to whoever connects."""
    return Challenge(nonce=secrets.token_hex(16))


def answered(asked: Challenge, response: Response) -> Proof | Refused:
    """The recorder's answer to a response: its own proof, or the refusal of an agent with another secret."""
    if not hmac.compare_digest(response.proof.encode(), _proof("agent", asked.nonce, response.nonce).encode()):
        return Refused(message=f"--join: number 0 has another secret; {_REMEDY}")
    return Proof(proof=_proof("recorder", asked.nonce, response.nonce))


def introduce(link: Link[FromRecorder], at: str, limit_s: float, stop: Callable[[], bool]) -> None:
    """The handshake on the side of an agent.

    Args:
        at: the address of the recorder, for messages.
        stop: ends the wait.

    Raises:
        UsageError: the recorder has another secret, is no recorder, or does not answer.
    """
    nonce, asked, deadline = secrets.token_hex(16), "", time.monotonic() + limit_s
    while time.monotonic() < deadline and not stop() and not link.closed:
        try:
            said = link.receive(0.5)
        except LinkError as error:
            raise UsageError(f"--join: {at}: {error}; check MASTER_ADDR and MASTER_PORT") from None
        for message in said:
            if isinstance(message, Challenge):
                asked = message.nonce
                link.send(Response(nonce=nonce, proof=_proof("agent", asked, nonce)))
            elif isinstance(message, Refused):
                raise UsageError(message.message)
            elif isinstance(message, Proof) and asked:
                if hmac.compare_digest(message.proof.encode(), _proof("recorder", asked, nonce).encode()):
                    return
                raise UsageError(f"--join: number 0 at {at} has another secret; {_REMEDY}")
    raise UsageError(f"--join: number 0 at {at} does not answer; look at its output")
