"""Small topologies of Storm's examples: `agiledart run agiledart_examples.storm_pool:word_count`.

The shapes are those of the pool of [AgileDART] figures 8 and 12. Storm's numbers of instances are given at submission, for example
`--parallelism split=8 --parallelism count=12`. The inputs come from the generator `example:`, or from CSV `id,milliseconds,value`.
"""

from datetime import timedelta
from typing import NamedTuple

from agiledart import (
    Change,
    Joined,
    Pane,
    Ranking,
    Sink,
    Source,
    Stream,
    Topology,
    counted,
    csv,
    hopping,
    plugin,
    sum_of,
    tumbling,
)

JOIN_WINDOW = timedelta(seconds=10)
JOIN_TIMEOUT = timedelta(seconds=30)
SUM_SIZE, SUM_EVERY, SUM_LAG = timedelta(seconds=5), timedelta(seconds=3), timedelta(seconds=5)
TOP = 10


class Text(NamedTuple):
    """Text with its number and event time in milliseconds."""

    id: int
    at_ms: int
    text: str


class Whole(NamedTuple):
    """Whole number with its running number and event time in milliseconds."""

    id: int
    at_ms: int
    value: int


class Gender(NamedTuple):
    """Left side of the joins."""

    id: int
    at_ms: int
    gender: str


class Age(NamedTuple):
    """Right side of the joins."""

    id: int
    at_ms: int
    age: int


class WordCount(NamedTuple):
    """Number of times that a word has come so far."""

    word: str
    times: int


class WindowTotal(NamedTuple):
    """WindowTotal of the values of a window that ends at `end_ms`."""

    end_ms: int
    total: int


class Person(NamedTuple):
    """Both sides of a join on the id."""

    id: int
    gender: str
    age: int


class Greeting(NamedTuple):
    """Result of the lambdas."""

    text: str
    number: int


class Request(NamedTuple):
    """Visit of a page."""

    page: str
    user: str


class BusiestPages(NamedTuple):
    """Most visited pages, and their numbers of visits."""

    pages: list[str]
    visits: list[int]


def _texts(topology: Topology, name: str, texts: Source[Text]) -> Stream[Text]:
    return topology.source(name, texts, rows=Text, event_time=lambda row: row.at_ms)


def _wholes(topology: Topology, integers: Source[Whole], lag: timedelta = timedelta(0)) -> Stream[Whole]:
    return topology.source("integers", integers, rows=Whole, event_time=lambda row: row.at_ms, max_out_of_order=lag)


def exclaimed(row: Text) -> Text:
    """Append three exclamation marks."""
    return row._replace(text=row.text + "!!!")


def exclamation(
    words: Source[Text] = plugin("example", stream="words"),  # noqa: B008  a connector is a value
    out: Sink[Text] = csv("exclamation.csv"),  # noqa: B008  as above
) -> Topology:
    """Build ExclamationTopology: words, exclaimed twice by steps of their own."""
    topology = Topology("exclamation")
    words_read = _texts(topology, "words", words)
    words_read.map(exclaimed, "exclaim1").map(exclaimed, "exclaim2").sink("out", out)
    return topology


def words_of(row: Text) -> list[str]:
    """Split at blanks."""
    return row.text.split()


def word(text: str) -> str:
    """Return the key of a word's count."""
    return text


def word_total(change: Change[str, int, str]) -> WordCount:
    """Return the count of a word so far."""
    return WordCount(change.key, change.value or 0)


def _counts(topology: Topology, sentences: Source[Text], out: Sink[WordCount]) -> Topology:
    (
        _texts(topology, "sentences", sentences)
        .flat_map(words_of, "split")
        .key_by(word)
        .running_count("count")
        .map(word_total)
        .sink("out", out)
    )
    return topology


def word_count(
    sentences: Source[Text] = plugin("example", stream="sentences"),  # noqa: B008  a connector is a value
    out: Sink[WordCount] = csv("word-count.csv"),  # noqa: B008  as above
) -> Topology:
    """Build WordCountTopology: sentences, split at blanks, a running count of each word."""
    return _counts(Topology("word-count"), sentences, out)


def word_count_4(
    sentences: Source[Text] = plugin("example", stream="sentences"),  # noqa: B008  a connector is a value
    out: Sink[WordCount] = csv("word-count-4.csv"),  # noqa: B008  as above
) -> Topology:
    """Build WordCount of figure 12 in four stages: source, split, count, sink."""
    return _counts(Topology("word-count-4"), sentences, out)


def everything(row: Whole | WindowTotal) -> int:
    """Return the key of windows over all rows."""
    return 0


def value(row: Whole) -> int:
    """Return the number that is summed up."""
    return row.value


def total(row: WindowTotal) -> int:
    """Return the sum that is averaged."""
    return row.total


def sum_of_pane(pane: Pane[int, int]) -> WindowTotal:
    """Return a window's sum."""
    return WindowTotal(pane.end_ms, pane.value)


def average_of_pane(pane: Pane[int, int]) -> WindowTotal:
    """Return the whole mean of the three sums of a window."""
    return WindowTotal(pane.end_ms, pane.value // 3)


def sliding_window(
    integers: Source[Whole] = plugin("example", stream="integers"),  # noqa: B008  a connector is a value
    out: Sink[WindowTotal] = csv("sliding-window.csv"),  # noqa: B008  as above
) -> Topology:
    """Build SlidingWindowTopology: the sum of 30 numbers, every 10 numbers; then the whole mean of three sums."""
    topology = Topology("sliding-window")
    (
        _wholes(topology, integers)
        .key_by(everything, returns=int)
        .window(counted(30, every=10))
        .aggregate("sliding-sum", sum_of(value))
        .map(sum_of_pane)
        .key_by(everything, returns=int)
        .window(counted(3))
        .aggregate("tumbling-average", sum_of(total))
        .map(average_of_pane)
        .sink("out", out)
    )
    return topology


def sliding_tuple_ts(
    integers: Source[Whole] = plugin("example", stream="integers"),  # noqa: B008  a connector is a value
    out: Sink[WindowTotal] = csv("sliding-tuple-ts.csv"),  # noqa: B008  as above
) -> Topology:
    """Build SlidingTupleTsTopology: sums of 5 s of event time, every 3 s; rows may come 5 s late."""
    topology = Topology("sliding-tuple-ts")
    (
        _wholes(topology, integers, SUM_LAG)
        .key_by(everything, returns=int)
        .window(hopping(SUM_SIZE, SUM_EVERY))
        .aggregate("sliding-sum", sum_of(value))
        .map(sum_of_pane)
        .sink("out", out)
    )
    return topology


def gender_id(row: Gender) -> int:
    """Return the left key of the joins."""
    return row.id


def age_id(row: Age) -> int:
    """Return the right key of the joins."""
    return row.id


def person(pair: Joined[int, Gender, Age]) -> Person:
    """Return both sides as one row."""
    return Person(pair.key, pair.left.gender, pair.right.age)


def _sides(topology: Topology, genders: Source[Gender], ages: Source[Age]) -> tuple[Stream[Gender], Stream[Age]]:
    left = topology.source("genders", genders, rows=Gender, event_time=lambda row: row.at_ms)
    right = topology.source("ages", ages, rows=Age, event_time=lambda row: row.at_ms)
    return left, right


def single_join(
    genders: Source[Gender] = plugin("example", stream="genders"),  # noqa: B008  a connector is a value
    ages: Source[Age] = plugin("example", stream="ages"),  # noqa: B008  as above
    out: Sink[Person] = csv("single-join.csv"),  # noqa: B008  as above
) -> Topology:
    """Build SingleJoinExample: each half pair waits 30 s for its partner."""
    topology = Topology("single-join")
    left, right = _sides(topology, genders, ages)
    (
        left.key_by(gender_id)
        .interval_join("join", right.key_by(age_id), earliest=-JOIN_TIMEOUT, latest=JOIN_TIMEOUT)
        .map(person)
        .sink("out", out)
    )
    return topology


def join_bolt(
    genders: Source[Gender] = plugin("example", stream="genders"),  # noqa: B008  a connector is a value
    ages: Source[Age] = plugin("example", stream="ages"),  # noqa: B008  as above
    out: Sink[Person] = csv("join-bolt.csv"),  # noqa: B008  as above
) -> Topology:
    """Build JoinBoltExample: an inner join on the id in tumbling windows of 10 s."""
    topology = Topology("join-bolt")
    left, right = _sides(topology, genders, ages)
    (
        left.key_by(gender_id)
        .window_join("joiner", right.key_by(age_id), tumbling(JOIN_WINDOW))
        .map(person)
        .sink("out", out)
    )
    return topology


def greeting(row: Text) -> Greeting:
    """Return a greeting with the text before the first hyphen."""
    return Greeting(f"Hello lambda:{row.text.partition('-')[0]}:so cool!", 999)


def is_greeting(row: Greeting) -> bool:
    """Return whether the row has a text; the second lambda."""
    return bool(row.text)


def lambda_topology(
    uuids: Source[Text] = plugin("example", stream="uuids"),  # noqa: B008  a connector is a value
    out: Sink[Greeting] = csv("lambda.csv"),  # noqa: B008  as above
) -> Topology:
    """Build LambdaTopology: two stateless steps between source and sink."""
    topology = Topology("lambda-topology")
    _texts(topology, "uuids", uuids).map(greeting, "bolt1").filter(is_greeting, "bolt2").sink("out", out)
    return topology


def prefixes(row: Text) -> list[str]:
    """Return all beginnings of a text, the shortest first."""
    return [row.text[:length] for length in range(1, len(row.text) + 1)]


def prefix(
    texts: Source[Text] = plugin("example", stream="words"),  # noqa: B008  a connector is a value
    out: Sink[WordCount] = csv("prefix.csv"),  # noqa: B008  as above
) -> Topology:
    """Build Prefix: a running count of all beginnings of texts."""
    topology = Topology("prefix")
    (
        _texts(topology, "texts", texts)
        .flat_map(prefixes, "prefixes")
        .key_by(word)
        .running_count("count")
        .map(word_total)
        .sink("out", out)
    )
    return topology


def request_of(row: Text) -> Request:
    """Parse `PAGE USER`; raises ValueError for another text."""
    page, user = row.text.split()
    return Request(page, user)


def page_of(row: Request) -> str:
    """Return the key of the visits."""
    return row.page


def page_and_user(row: Request) -> tuple[str, str]:
    """Return the key of different visits."""
    return (row.page, row.user)


def remove_duplicates(
    requests: Source[Text] = plugin("example", stream="requests"),  # noqa: B008  a connector is a value
    out: Sink[Request] = csv("remove-duplicates.csv"),  # noqa: B008  as above
) -> Topology:
    """Build RemoveDuplicates of figure 12: source, parse, distinct by key, sink."""
    topology = Topology("remove-duplicates")
    (
        _texts(topology, "requests", requests)
        .map(request_of, "parse", on_error="skip")
        .key_by(page_and_user)
        .distinct("distinct")
        .sink("out", out)
    )
    return topology


def top_pages(ranking: Ranking[Request, str, int]) -> BusiestPages:
    """Return a ranking as lists."""
    return BusiestPages([entry.key for entry in ranking.entries], [entry.value for entry in ranking.entries])


def top_k(
    requests: Source[Text] = plugin("example", stream="requests"),  # noqa: B008  a connector is a value
    out: Sink[BusiestPages] = csv("top-k.csv"),  # noqa: B008  as above
) -> Topology:
    """Build TopK of figure 12: source, parse, count, the ten most visited pages at each change."""
    topology = Topology("top-k")
    (
        _texts(topology, "requests", requests)
        .map(request_of, "parse", on_error="skip")
        .key_by(page_of)
        .running_count("count")
        .top("top", n=TOP)
        .map(top_pages)
        .sink("out", out)
    )
    return topology
