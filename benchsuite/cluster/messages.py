"""What the recorder of a run over nodes and the agent of a node say to each other: one JSON object a line.

agent        recorder
Hello   ->                         over TCP after the handshake, see `handshake`
        <-   Welcome, or Refused
Fenced  ->                         the agent is ready for tasks
        <-   Ping                  several times: the offset between the two clocks
Pong    ->
        <-   Prepare               a task
Prepared, or NotPrepared ->
        <-   Start                 where the ranks meet
Text, Beats ->                     what the ranks write, and how far they are
        <-   Say, End
Ended   ->
        <-   Bye                   the run is over
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from benchsuite.describe.tasks import Gpu, Task
from benchsuite.events import Member
from benchsuite.records import Failure, Machine, NodePart, Status
from benchsuite.schema import Record

# Agents and recorders of different numbers do not understand each other.
PROTOCOL = 1


class Challenge(Record, frozen=True, kw_only=True, tag="challenge", tag_field="is"):
    """The recorder asks who has connected."""

    nonce: Annotated[str, Meta(description="a number that is used once")]


class Response(Record, frozen=True, kw_only=True, tag="response", tag_field="is"):
    """The agent shows that it knows the secret of the run."""

    nonce: Annotated[str, Meta(description="a number that is used once")]
    proof: Annotated[str, Meta(description="HMAC-SHA256 of both numbers")]


class Proof(Record, frozen=True, kw_only=True, tag="proof", tag_field="is"):
    """The recorder shows that it knows the secret of the run."""

    proof: Annotated[str, Meta(description="HMAC-SHA256 of both numbers")]


class Hello(Record, frozen=True, kw_only=True, tag="hello", tag_field="is"):
    """An agent introduces itself."""

    protocol: int = PROTOCOL
    version: Annotated[str, Meta(description="version of benchsuite")]
    name: Annotated[str, Meta(description="name of its node")]
    rank: Annotated[int, Meta(description="number of the agent, from 0")]
    node: Annotated[int, Meta(description="number of its node, from 0")]
    address: Annotated[str, Meta(description="address by which other nodes reach it; empty: not known")] = ""
    profile_sha256: Annotated[str | None, Meta(description="of its jobs; null: the recorder's word counts")] = None
    machine: Machine
    gpus: Annotated[tuple[Gpu, ...], Meta(description="GPUs that it may use, in order")] = ()
    environ: Annotated[dict[str, str], Meta(description="recorded environment variables")] = {}


class Fenced(Record, frozen=True, kw_only=True, tag="fenced", tag_field="is"):
    """The agent has found its fences."""

    notes: Annotated[tuple[str, ...], Meta(description="what the user should know of them")] = ()


class Pong(Record, frozen=True, kw_only=True, tag="pong", tag_field="is"):
    """The answer to a ping."""

    at_s: Annotated[float, Meta(description="on the CLOCK_MONOTONIC of the agent's host")]


class Prepared(Record, frozen=True, kw_only=True, tag="prepared", tag_field="is"):
    """The agent has done all that comes before the start of the ranks."""

    port: Annotated[int, Meta(description="a free TCP port of its host")]


class NotPrepared(Record, frozen=True, kw_only=True, tag="not prepared", tag_field="is"):
    """The agent cannot start its part."""

    status: Status
    failure: Failure


class Text(Record, frozen=True, kw_only=True, tag="text", tag_field="is"):
    """Whole lines, or a part of a long one, that were appended to a file of the task."""

    file: Annotated[str, Meta(description="events.jsonl, events.RANK.jsonl, out, err, prepare or series")]
    text: str


class Beats(Record, frozen=True, kw_only=True, tag="beats", tag_field="is"):
    """The heartbeats of the agent's ranks."""

    counts: Annotated[dict[int, int], Meta(description="rank -> steps")]


class Ended(Record, frozen=True, kw_only=True, tag="ended", tag_field="is"):
    """The agent's part of the task is over, and nothing of it is left."""

    part: NodePart


class Asked(Record, frozen=True, kw_only=True, tag="asked", tag_field="is"):
    """A signal has asked the agent for the end."""


class Welcome(Record, frozen=True, kw_only=True, tag="welcome", tag_field="is"):
    """The recorder takes the agent."""

    isolation: str
    require_isolation: bool = False
    address: Annotated[str, Meta(description="by which other nodes reach the agent; empty: the agent knows it")] = ""


class Refused(Record, frozen=True, kw_only=True, tag="refused", tag_field="is"):
    """One of the two sides cannot take part; the reason is one line for the user."""

    message: str


class Ping(Record, frozen=True, kw_only=True, tag="ping", tag_field="is"):
    """Asks for the time."""


class Prepare(Record, frozen=True, kw_only=True, tag="prepare", tag_field="is"):
    """Prepare a task, but start nothing of it."""

    task: Annotated[Task, Meta(description="with the GPUs of this agent alone")]
    first_rank: Annotated[int, Meta(description="number of the agent's first rank in the task")]
    ranks: Annotated[int, Meta(description="ranks of this agent")]
    checkpoints: Annotated[str | None, Meta(description="path of its checkpoints; null: it writes none")] = None


class Start(Record, frozen=True, kw_only=True, tag="start", tag_field="is"):
    """Start the ranks."""

    member: Member


class Say(Record, frozen=True, kw_only=True, tag="say", tag_field="is"):
    """A word for the ranks: go or stop."""

    word: str


class End(Record, frozen=True, kw_only=True, tag="end", tag_field="is"):
    """End the task: after the usual grace, or at once."""

    at_once: bool = False


class Bye(Record, frozen=True, kw_only=True, tag="bye", tag_field="is"):
    """The run is over."""


FromAgent: TypeAlias = (
    Response | Hello | Fenced | Pong | Prepared | NotPrepared | Text | Beats | Ended | Asked | Refused
)
FromRecorder: TypeAlias = Challenge | Proof | Welcome | Refused | Ping | Prepare | Start | Say | End | Bye
