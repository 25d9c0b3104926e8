"""A run as a table of moments, and as a picture."""

import json
import os
import threading
import time


class Timeline:
    """Samples what `look()` returns (a dictionary of numbers or None) once a second until it is stopped."""

    def __init__(self, look):
        self.look, self.rows, self.marks, self.ended = look, [], [], False
        self.begun = time.monotonic()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.ended:
            try:
                self.rows.append({"second": round(time.monotonic() - self.begun, 1), **self.look()})
            except Exception as error:
                print(f"  timeline: {error}", flush=True)
            time.sleep(1)

    def mark(self, what):
        """Something happens now."""
        self.marks.append({"second": round(time.monotonic() - self.begun, 1), "what": what})

    def stop(self, file):
        self.ended = True
        self.thread.join()
        with open(file, "w") as out:
            json.dump({"rows": self.rows, "marks": self.marks}, out)


def draw(timeline, title, panels):
    """An SVG: one panel per group of series, steps between the samples, marks as vertical lines.

    `panels`: a list of (label, {series: colour})."""
    rows, marks = timeline["rows"], timeline["marks"]
    width, height, left, top, gap = 900, 150, 60, 50, 30
    last = max(row["second"] for row in rows) or 1
    x = lambda second: left + second / last * (width - left - 20)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + len(panels) * (height + gap) + 20}" '
        'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="20" font-size="15">{title}</text>',
    ]
    for number, (label, series) in enumerate(panels):
        y0 = top + number * (height + gap)
        values = [row[name] for row in rows for name in series if row.get(name) is not None]
        most = max([*values, 1e-9]) * 1.1
        y = lambda value: y0 + height - value / most * height
        parts.append(f'<text x="{left}" y="{y0 - 5}">{label}</text>')
        for share in (0, 0.5, 1):
            level = share * most / 1.1
            parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(level):.1f}" y2="{y(level):.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{level:.3g}</text>')
        for mark in marks:
            at = x(mark["second"])
            parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y0}" y2="{y0 + height}" stroke="#999" stroke-dasharray="3 3"/>')
            if number == 0:
                parts.append(f'<text x="{at + 3:.1f}" y="{y0 + 11}" fill="#555" font-size="10">{mark["what"]}</text>')
        for index, (name, colour) in enumerate(series.items()):
            path, pen = "", "M"
            for row in rows:
                value = row.get(name)
                if value is None:
                    pen = "M"
                    continue
                at = f"{x(row['second']):.1f}"
                path += f"{pen}{at} {y(value):.1f}" if pen == "M" else f"H{at}V{y(value):.1f}"
                pen = "L"
            parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            parts.append(f'<text x="{left + 200 + 130 * index}" y="{y0 - 5}" fill="{colour}">{name}</text>')
    for second in range(0, int(last) + 1, max(10, int(last / 12 / 10) * 10)):
        parts.append(f'<text x="{x(second):.1f}" y="{top + len(panels) * (height + gap)}" text-anchor="middle">{second} s</text>')
    return "\n".join([*parts, "</svg>"])


def keep(case, timeline, title, panels):
    """Writes data and picture where RIG_KEEP says."""
    folder = os.environ["RIG_KEEP"]
    os.makedirs(folder, exist_ok=True)
    data = os.path.join(folder, f"{case.name}.json")
    timeline.stop(data)
    with open(data) as file, open(os.path.join(folder, f"{case.name}.svg"), "w") as picture:
        picture.write(draw(json.load(file), title, panels))
    print(f"  {case.name}: timeline in {folder}", flush=True)
