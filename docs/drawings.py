"""Draw the pictures of the documentation: `python docs/drawings.py` writes docs/assets/*.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"

INK, MUTED, LINE = "#1f2937", "#5b6472", "#8a94a6"
BLUE, GREEN, AMBER, ROSE, GREY = "#e3ecfb", "#e2f3e6", "#fdf0d5", "#fbe4e4", "#eef0f3"
FONT = "font-family='DejaVu Sans, Verdana, Arial, sans-serif'"


class Drawing:
    """An SVG that grows element by element."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        bold: bool = False,
        anchor: str = "start",
        color: str = INK,
    ) -> None:
        weight = " font-weight='bold'" if bold else ""
        self.parts.append(
            f"<text x='{x}' y='{y}' {FONT} font-size='{size}' fill='{color}' "
            f"text-anchor='{anchor}'{weight}>{escape(words)}</text>"
        )

    def box(
        self, x: float, y: float, w: float, h: float, title: str, *lines: str, fill: str = BLUE
    ) -> None:
        """A box with a bold title and smaller lines, centred."""
        self.parts.append(
            f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='6' fill='{fill}' "
            f"stroke='{LINE}' stroke-width='1'/>"
        )
        top = y + h / 2 - 8 * len(lines) + 5
        self.text(x + w / 2, top, title, bold=True, anchor="middle")
        for number, line in enumerate(lines, 1):
            self.text(x + w / 2, top + 16 * number, line, size=11, anchor="middle", color=MUTED)

    def arrow(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        label: str = "",
        *,
        dashed: bool = False,
        color: str = INK,
    ) -> None:
        dash = " stroke-dasharray='5 4'" if dashed else ""
        self.parts.append(
            f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{color}' "
            f"stroke-width='1.4' marker-end='url(#head)'{dash}/>"
        )
        if label:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 6, label, size=11, anchor="middle")

    def rule(self, x1: float, y1: float, x2: float, y2: float, *, dashed: bool = True) -> None:
        dash = " stroke-dasharray='3 4'" if dashed else ""
        self.parts.append(
            f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='{LINE}' "
            f"stroke-width='1'{dash}/>"
        )

    def panel(self, x: float, y: float, w: float, h: float, title: str) -> None:
        self.parts.append(
            f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='8' fill='none' "
            f"stroke='{LINE}' stroke-width='1.2' stroke-dasharray='6 4'/>"
        )
        self.text(x + 10, y + 18, title, size=12, bold=True, color=MUTED)

    def save(self, name: str, title: str) -> None:
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' "
            f"width='{self.width}' height='{self.height}' role='img'>"
            f"<title>{escape(title)}</title>"
            "<defs><marker id='head' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' "
            f"markerHeight='7' orient='auto'><path d='M0 0 L10 5 L0 10 z' fill='{INK}'/></marker>"
            f"</defs><rect width='{self.width}' height='{self.height}' fill='#ffffff'/>"
        )
        (ASSETS / name).write_text("\n".join([head, *self.parts, "</svg>"]) + "\n")


ROOMS = [
    ("frontend", "the Python API and the subcommands", BLUE),
    ("streams", "batches of topics, one after the other, committed once", BLUE),
    ("scheduler", "runs the stages: attempts, speculation, recovery, progress", BLUE),
    ("runtime", "where a job runs: local processes (local) or Ray (ray)", BLUE),
    ("planner", "from a job and its inputs to stages, tasks and partitions; explain", BLUE),
    ("tasks", "what a worker runs: map, sample, reduce; join, group, sort (operators)", GREEN),
    ("sinks", "part files (parts), then one commit (delta, folder)", GREEN),
    ("sources", "from a path to splits and batches", GREEN),
    ("shuffle", "moving rows by key: wire, metadata, store, client", AMBER),
    ("storage", "every file system and table log", GREY),
    ("compute", "pure functions over Arrow columns: kernel, sorting, sql", GREY),
    ("page", "HTTP: the live page, reports, health, metrics", GREY),
    ("security", "certificates, tokens, and who may call what", GREY),
    ("events", "the stream of events of a job, its state and its history", GREY),
    ("config", "the job file, settings, references to functions", GREY),
    ("system", "processes, signals, memory, temporary folders, retries", GREY),
]


def rooms() -> None:
    """Draw the rooms, from the top of the import order to its bottom."""
    drawing = Drawing(860, 34 * len(ROOMS) + 60)
    drawing.text(20, 26, "mrflight/", size=15, bold=True)
    for number, (name, words, fill) in enumerate(ROOMS):
        y = 42 + 34 * number
        drawing.parts.append(
            f"<rect x='20' y='{y}' width='640' height='30' rx='5' fill='{fill}' stroke='{LINE}'/>"
        )
        drawing.text(34, y + 20, name, bold=True)
        drawing.text(130, y + 20, words, size=12, color=MUTED)
    low = 42 + 34 * len(ROOMS)
    top = 42 + 34 * [name for name, _, _ in ROOMS].index("shuffle")
    drawing.arrow(685, 50, 685, low - 8)
    drawing.text(697, 70, "imports only", size=12, color=MUTED)
    drawing.text(697, 86, "go down", size=12, color=MUTED)
    drawing.box(710, top - 44, 130, 58, "servers/", "metadata, data", fill=AMBER)
    drawing.text(710, top + 32, "imports shuffle", size=11, color=MUTED)
    drawing.text(710, top + 47, "and the rooms below", size=11, color=MUTED)
    drawing.save("rooms.svg", "The rooms of mrflight, in the order in which they import")


def job() -> None:
    """Draw the steps of a job against the processes that take part."""
    drawing = Drawing(980, 470)
    lanes = ["driver", "metadata server", "workers", "data servers", "store"]
    tops = [50, 140, 210, 310, 390]
    for name, y in zip(lanes, tops, strict=True):
        drawing.text(6, y + 34, name, bold=True, size=12)
        drawing.rule(0, y + 66, 970, y + 66)
    steps = ["1 start, plan", "2 create", "3 map", "4 plan again, reduce", "5 commit", "6 end"]
    lefts = [125, 285, 400, 560, 750, 870]
    for words, x in zip(steps, lefts, strict=True):
        drawing.text(x, 28, words, size=12, bold=True, color=MUTED)
    drawing.box(125, 54, 140, 54, "JobSpec, JobPlan", "runtime, planner")
    drawing.box(285, 54, 95, 54, "shuffle", "scheduler")
    drawing.box(400, 54, 140, 54, "map tasks", "scheduler")
    drawing.box(560, 54, 170, 54, "reduce tasks", "by the real sizes")
    drawing.box(750, 54, 100, 54, "commit", "sinks")
    drawing.box(870, 54, 95, 54, "stop", "runtime")
    drawing.box(285, 146, 95, 50, "placement", fill=AMBER)
    drawing.box(400, 146, 140, 50, "committed", "attempts of maps", fill=AMBER)
    drawing.box(560, 146, 170, 50, "layout", "rows, bytes, locations", fill=AMBER)
    drawing.box(400, 222, 140, 44, "map attempts", fill=GREEN)
    drawing.box(560, 222, 170, 44, "reduce attempts", fill=GREEN)
    drawing.box(460, 318, 205, 44, "blocks by partition", "in memory or spilled", fill=AMBER)
    drawing.box(125, 398, 415, 44, "input files", fill=GREY)
    drawing.box(560, 398, 170, 44, "part files", fill=GREY)
    drawing.box(750, 398, 100, 44, "log entry", fill=GREY)
    drawing.arrow(265, 81, 285, 81)
    drawing.arrow(380, 81, 400, 81)
    drawing.arrow(540, 81, 560, 81)
    drawing.arrow(730, 81, 750, 81)
    drawing.arrow(850, 81, 870, 81)
    drawing.arrow(195, 398, 195, 108, dashed=True)
    drawing.text(201, 330, "listing,", size=11, color=MUTED)
    drawing.text(201, 345, "schemas", size=11, color=MUTED)
    drawing.arrow(332, 108, 332, 146)
    drawing.arrow(425, 398, 425, 266)
    drawing.arrow(470, 222, 470, 196)
    drawing.arrow(510, 266, 510, 318)
    drawing.text(516, 296, "DoPut", size=11, color=MUTED)
    drawing.arrow(600, 318, 600, 266)
    drawing.text(606, 296, "DoGet", size=11, color=MUTED)
    drawing.arrow(700, 266, 700, 398)
    drawing.arrow(645, 146, 645, 108)
    drawing.arrow(800, 108, 800, 398)
    drawing.save("job.svg", "The life of a job")


def batch() -> None:
    """Draw the steps of a batch through a map task, a data server and a reduce task."""
    drawing = Drawing(980, 400)
    drawing.panel(10, 10, 960, 120, "map task")
    drawing.panel(10, 150, 960, 100, "data server")
    drawing.panel(10, 270, 960, 120, "reduce task")
    maps = [
        ("read a split", "sources"),
        ("map, sql", "config, compute/sql"),
        ("combine", "tasks/operators"),
        ("place each row", "compute/kernel"),
        ("buffer rows", "shuffle/client"),
        ("encode a block", "shuffle/wire"),
    ]
    for number, (what, where) in enumerate(maps):
        x = 24 + 158 * number
        drawing.box(x, 44, 142, 66, what, where, fill=GREEN)
        if number:
            drawing.arrow(x - 16, 77, x, 77)
    drawing.arrow(885, 110, 885, 178)
    drawing.text(893, 144, "DoPut", size=11)
    drawing.box(814, 178, 142, 58, "check the hash", "servers", fill=AMBER)
    drawing.box(498, 178, 300, 58, "hold in memory within the budget", "shuffle/store", fill=AMBER)
    drawing.box(182, 178, 300, 58, "spill the coldest partitions", "shuffle/store", fill=AMBER)
    drawing.box(24, 178, 142, 58, "read a partition", "shuffle/store", fill=AMBER)
    drawing.arrow(814, 207, 798, 207)
    drawing.arrow(498, 207, 482, 207)
    drawing.arrow(182, 207, 166, 207)
    drawing.arrow(120, 236, 120, 304)
    drawing.text(128, 264, "DoGet", size=11)
    reduces = [
        ("check, decode", "shuffle/wire"),
        ("join, group, sort", "tasks/operators"),
        ("function, sql", "config, compute/sql"),
        ("split by value", "sinks/parts"),
        ("encode a part file", "sinks/parts"),
        ("write it", "storage"),
    ]
    for number, (what, where) in enumerate(reduces):
        x = 24 + 158 * number
        drawing.box(x, 304, 142, 66, what, where, fill=GREEN)
        if number:
            drawing.arrow(x - 16, 337, x, 337)
    drawing.save("batch.svg", "The life of a batch")


def _sequence(
    name: str, title: str, actors: list[tuple[str, str]], steps: list[tuple[int, int, str]]
) -> None:
    """Draw messages between actors; a message from an actor to itself is a note."""
    gap = 210
    width, height = gap * len(actors) + 40, 40 * len(steps) + 110
    drawing = Drawing(width, height)
    middles = [20 + gap * number + gap / 2 for number in range(len(actors))]
    for x, (actor, fill) in zip(middles, actors, strict=True):
        drawing.rule(x, 54, x, height - 16)
        drawing.box(x - 85, 16, 170, 38, actor, fill=fill)
    for number, (start, end, words) in enumerate(steps):
        y = 92 + 40 * number
        if start == end:
            wide = 6.4 * len(words) + 16
            drawing.parts.append(
                f"<rect x='{middles[start] - wide / 2}' y='{y - 18}' width='{wide}' height='24' "
                f"rx='4' fill='{GREY}' stroke='{LINE}'/>"
            )
            drawing.text(middles[start], y - 2, words, size=11, anchor="middle")
            continue
        drawing.arrow(middles[start], y, middles[end], y, dashed=False)
        left = min(middles[start], middles[end])
        drawing.parts.append(
            f"<rect x='{left + 8}' y='{y - 19}' width='{6.3 * len(words) + 6}' height='15' "
            "fill='#ffffff'/>"
        )
        drawing.text(left + 11, y - 7, words, size=11)
    drawing.save(name, title)


def commits() -> None:
    """Draw how a map attempt and an output are committed."""
    _sequence(
        "map-commit.svg",
        "How one attempt of a map is committed",
        [
            ("map 3, attempt 0", GREEN),
            ("map 3, attempt 1", GREEN),
            ("data server", AMBER),
            ("metadata server", AMBER),
            ("reduce task", GREEN),
        ],
        [
            (0, 2, "DoPut blocks of map 3, attempt 0"),
            (1, 2, "DoPut blocks of map 3, attempt 1"),
            (1, 3, "commit_map: rows, bytes"),
            (3, 1, "attempt 1 has won"),
            (0, 3, "commit_map: rows, bytes"),
            (3, 0, "attempt 1 has won: stop"),
            (4, 3, "GetFlightInfo: ticket, promised rows"),
            (4, 2, "DoGet the ticket"),
            (2, 4, "blocks of attempt 1 only"),
            (4, 4, "check rows and hashes"),
        ],
    )
    _sequence(
        "commit.svg",
        "How the output is committed once",
        [
            ("reduce 7, attempt 0", GREEN),
            ("reduce 7, attempt 1", GREEN),
            ("driver", BLUE),
            ("store", GREY),
        ],
        [
            (0, 3, "write part-00007-0-<job id>"),
            (1, 3, "write part-00007-1-<job id>"),
            (1, 2, "done: files, rows, statistics"),
            (2, 0, "stop"),
            (2, 3, "read the log: run_id there?"),
            (2, 3, "put next entry if absent"),
            (3, 2, "version 5, or taken: look again"),
            (2, 3, "delete part-00007-0-<job id>"),
        ],
    )


def draw_all() -> None:
    """Draw every picture."""
    rooms()
    job()
    batch()
    commits()


if __name__ == "__main__":
    draw_all()
