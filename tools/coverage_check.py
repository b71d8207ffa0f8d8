#!/usr/bin/env python3
"""Says which uncovered branches and lines tests/COVERAGE.md does not explain: coverage_check.py JSON TABLE

JSON is what gcovr wrote, TABLE the page. A row of it that begins with `| `FILE` | `FUNCTION`, ... |` explains
what is not reached in these functions. Fails where a function has such a branch or line and no row, and where
a row names a function that is not there. A row whose function is all reached is fine: timing decides some.
--list: what is not reached, with its text, instead.
"""
import json
import re
import sys


def functions_of(path):
    """The name of the function that each line is in; lines count from 1."""
    with open(path, encoding="utf-8") as source:
        lines = source.read().split("\n")
    names, current, header, begins = [""], "", "", 0
    for at, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z_]", line) and "(" in line and not line.startswith("_Static_assert"):
            header, begins = re.search(r"(\w+)\s*\(", line).group(1), at
        if line == "{":
            current = header
            names[begins:] = [current] * (at - begins)
        names.append(current)
        if line == "}":
            current = ""
    return names, [""] + lines


def unreached(report):
    """(file, function, line, its text, how many branches; 0: the line itself), in order."""
    with open(report, encoding="utf-8") as coverage:
        files = json.load(coverage)["files"]
    for entry in sorted(files, key=lambda entry: entry["file"]):
        names, lines = functions_of(entry["file"])
        for line in entry["lines"]:
            if line.get("gcovr/noncode") or line.get("gcovr/excluded"):
                continue
            at, missed = line["line_number"], sum(b["count"] == 0 for b in line["branches"])
            if line["count"] == 0 or missed:
                reached = line["count"] > 0
                yield entry["file"], names[at], at, lines[at].strip(), missed if reached else 0


def explained(table):
    """(file, function) of each row."""
    with open(table, encoding="utf-8") as page:
        for row in page:
            cells = [cell.strip() for cell in row.split("|")]
            if len(cells) < 5 or not re.fullmatch(r"`\w+/\w+\.c`", cells[1]):
                continue
            for name in re.findall(r"`(\w+)`", cells[2]):
                yield cells[1].strip("`"), name


def main():
    args = [arg for arg in sys.argv[1:] if arg != "--list"]
    found = list(unreached(args[0]))
    if "--list" in sys.argv:
        for file, name, at, text, missed in found:
            print(f"{file}:{at}\t{name}\t{missed or 'line'}\t{text}")
        return 0
    reasons, bad = set(explained(args[1])), 0
    for file, name, at, text, missed in found:
        if (file, name) not in reasons:
            what = f"{missed} branch(es) of" if missed else "not reached:"
            print(f"coverage: {file}:{at}: {name}: {what} {text}: no reason in {args[1]}")
            bad += 1
    for file, name in sorted(reasons):
        try:
            there = name in functions_of(file)[0]
        except OSError:
            there = False
        if not there:
            print(f"coverage: {args[1]} explains {file}: {name}, which is not there")
            bad += 1
    functions = len({(file, name) for file, name, *_ in found})
    if not bad:
        print(f"coverage: all that is not reached, in {functions} functions, has its reason")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
