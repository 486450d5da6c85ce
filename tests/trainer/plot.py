"""The pictures of --plot and --plot-logs: well-formed, with the values at the places that the numbers at the axes say.
TRAIN: tutti-train; RUN: tutti-run."""
import json
import math
import os
import re
import subprocess
import time
import xml.etree.ElementTree as xml

from pictures import SVG, check, run

UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
PANELS = {"loss": "loss", "learning rate": "lr", "gradient norm": "norm", "tokens/s": "tokens_per_second",
          "share of the products' peak": "share_of_peak"}
SMALL = ["--layers=1", "--heads=2", "--width=16", "--context=16", "--batch=4", "--sample=0", "--log-every=1000000",
         "--data=" + os.path.dirname(os.path.abspath(__file__))]


def call(*options, code=0, ranks=1):
    launcher = [os.environ["RUN"], "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launcher, os.environ["TRAIN"], *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120, env={**os.environ, "TUTTI_LOG": "NONE"})
    check(done.returncode == code, options, "ended with", done.returncode, done.stdout)
    return done.stdout


def number(text):
    digits, unit = re.fullmatch(r"(-?[0-9.]+(?:e[-+]?[0-9]+)?)([kMG]?)", text).groups()
    return float(digits) * UNITS[unit]


def scale(ticks):
    """From pixels to values, by the first and the last tick; the others must lie on this line."""
    (p0, v0), (p1, v1) = ticks[0], ticks[-1]
    value = lambda p: v0 + (p - p0) * (v1 - v0) / (p1 - p0)
    for p, v in ticks:
        check(abs(value(p) - v) < 0.01 * abs(v1 - v0) / len(ticks), "tick", v, "at", p, "means", value(p))
    return value


def picture(path):
    """Its texts, and its curves by panel as {(panel, run, held out): [(step, value), ...]}, read with the numbers at the axes."""
    root = xml.parse(path).getroot()
    check(root.tag == SVG + "svg" and "href" not in open(path).read(), path, "needs other files")
    ticks = [(float(t.get("x")), number(t.text)) for t in root.findall(SVG + "text") if t.get("class") == "tick"]
    curves = {}
    for group in root.findall(SVG + "g"):
        name = re.split(r"[;(]", group.find(SVG + "text").text)[0].strip()
        heights = [(float(t.get("y")) - 4, number(t.text)) for t in group.findall(SVG + "text") if t.get("class") == "tick"]
        check(len(ticks) >= 1 and len(heights) >= 2, name, "has no axes", ticks, heights)
        to_step, to_value = scale(ticks) if len(ticks) > 1 else (lambda p: ticks[0][1]), scale(heights)
        for curve in group.findall(SVG + "path"):
            classes = curve.get("class").split()
            if "curve" not in classes:
                continue
            points = re.findall(r"[ML](-?[0-9.]+) (-?[0-9.]+)", curve.get("d"))
            check(all(0 <= float(x) <= float(root.get("width")) and 0 <= float(y) <= float(root.get("height")) for x, y in points),
                  name, "leaves the picture")
            key = name, int(next(c for c in classes if c.startswith("run"))[3:]), "held-out" in classes
            curves[key] = [(to_step(float(x)), to_value(float(y))) for x, y in points]
            check(len(curves[key]) == curve.get("d").count("M") + curve.get("d").count("L"), "a coordinate that is no number")
    return [t.text for t in root.iter(SVG + "text")], curves


def rows(path):
    """The rows of steps and of held-out losses, without the header of each run."""
    return [row for row in map(json.loads, open(path)) if row.get("kind") != "run"]


def is_drawn(curve, want, what):
    """The curve has the points of want, but for the width of a pixel's tenth."""
    check(len(curve) == len(want), what, "has", len(curve), "points, expected", len(want))
    for axis in 0, 1:
        high, low = max(p[axis] for p in want), min(p[axis] for p in want)
        for got, expected in zip(curve, want):
            check(abs(got[axis] - expected[axis]) <= 0.002 * max(high - low, abs(high) * 1e-3),
                  what, "has", got, "where the log says", expected)


def flops_of_a_token(header):
    """Six for each weight of a matrix that a token meets, and attention: two products of half the context, forward, and four backward."""
    o = header["options"]
    matrices = o["layers"] * 12 * o["width"] ** 2 + o["vocabulary"] * o["width"]
    return 6 * matrices + 6 * o["layers"] * o["width"] * o["context"]


def check_header(path):
    """The first line of a log says what is run; each other line says of which kind it is."""
    header, *others = [json.loads(line) for line in open(path)]
    check(header["kind"] == "run" and header["ranks"] == 2 and header["after_step"] == 0, header)
    check(header["mesh"] == {"dp": 2, "fsdp": 1, "pp": 1, "tp": 1, "ring": 1, "ulysses": 1}, header["mesh"])
    check(re.fullmatch("[0-9]+[.][0-9]+[.][0-9]+", header["version"]) and header["parameters"] > 1000, header)
    check(header["peak_flops"] > 1e6, header["peak_flops"])
    flops = {row["share_of_peak"] * header["peak_flops"] / row["tokens_per_second"] for row in others if row["kind"] == "step"}
    check(max(flops) / min(flops) < 1.001, "other operations a token in each step:", flops)
    check(0.999 < max(flops) / flops_of_a_token(header) < 1.001, "operations of a token:", max(flops), flops_of_a_token(header))
    options = header["options"]
    check((options["width"], options["steps"], options["eval-every"], options["optimizer"]) == (16, 70, 35, "adamw"), options)
    for row in others:
        check(row["kind"] == ("held_out" if "held_out_loss" in row else "step"), row)
        if "held_out_loss" in row:
            check(abs(row["perplexity"] / math.exp(row["held_out_loss"]) - 1) < 1e-6, row)


def check_run(work):
    """A run draws what it logs. The held-out loss after the last step is computed twice, and drawn once."""
    out = call(*SMALL, "--steps=70", "--eval-every=35", f"--log={work}/log", f"--plot={work}/run.svg", ranks=2)
    texts, curves = picture(f"{work}/run.svg")
    log = rows(f"{work}/log")
    for panel, key in PANELS.items():
        is_drawn(curves[panel, 0, False], [(r["step"], r[key]) for r in log if key in r], panel)
    held_out = [(r["step"], r["held_out_loss"]) for r in log if "held_out_loss" in r]
    check([step for step, _ in held_out] == [35, 70], held_out)
    check(f"\nheld-out loss {held_out[1][1]:.4f}\n" in out, out)
    check_header(f"{work}/log")
    is_drawn(curves["loss", 0, True], held_out, "held-out loss")
    check("gpt2" in texts[0] and "parameters; 2 ranks = dp 2; DDP; adamw" in texts[0], "the title", texts[0])
    check(os.listdir(work).count("run.svg") == 1 and not [f for f in os.listdir(work) if f.endswith(".tmp")], os.listdir(work))


def check_rewritten(work):
    """While a run trains, the picture is there, is replaced, and is whole; a run that a signal ends draws its last step."""
    path = f"{work}/run.svg"
    run = subprocess.Popen([os.environ["TRAIN"], *SMALL, "--steps=1000000000", f"--plot={path}"], stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.STDOUT)
    try:
        seen, deadline = set(), time.monotonic() + 60
        while len(seen) < 2 and time.monotonic() < deadline:
            if os.path.exists(path):
                seen.add(picture(path)[1]["loss", 0, False][-1][0])
            time.sleep(0.05)
    finally:
        run.terminate()
    out = run.communicate(timeout=60)[0]
    check(len(seen) == 2, "pictures:", seen)
    last = int(re.search(r"after step ([0-9]+)", out).group(1))
    check(abs(picture(path)[1]["loss", 0, False][-1][0] - last) <= last / 1000 + 1, "the last picture ends before step", last)


def check_resumed(work):
    """A run that is resumed goes on with the curves of its log, without the steps behind the checkpoint; without a log it begins anew."""
    run = [f"--checkpoint={work}/c", f"--log={work}/resumed", f"--plot={work}/resumed.svg"]
    call(*SMALL, "--steps=30", "--every=20", "--eval-every=15", *run)
    os.remove(f"{work}/c/step-00000030.safetensors")
    call(f"--resume={work}/c", "--steps=40", "--sample=0", *run)
    lines = [json.loads(line) for line in open(f"{work}/resumed")]
    headers = [(i, line) for i, line in enumerate(lines) if line["kind"] == "run"]
    check([(i, h["after_step"], h["options"]["steps"]) for i, h in headers] == [(0, 0, 30), (33, 20, 40)], "headers", headers)
    log = [r for r in rows(f"{work}/resumed") if "loss" in r]
    check(len(log) == 50, "the log has other lines")
    curves = picture(f"{work}/resumed.svg")[1]
    is_drawn(curves["loss", 0, False], sorted({r["step"]: r["loss"] for r in log}.items()), "resumed")
    check([round(step) for step, _ in curves["loss", 0, True]] == [15, 40], curves["loss", 0, True])
    call(f"--resume={work}/c", "--steps=50", "--sample=0", f"--plot={work}/anew.svg")
    check([round(s) for s, _ in picture(f"{work}/anew.svg")[1]["loss", 0, False]] == list(range(41, 51)), "not steps 41 to 50")


def write(path, values):
    with open(path, "w") as out:
        for step, keys in values:
            out.write(json.dumps({"step": step, **keys}) + "\n")
    return path


def check_logs(work):
    """Several logs in one picture, with colours and names, whatever signs these have."""
    a = write(f"{work}/a&b<c>\"'.json", [(s, {"loss": 5 / s, "lr": 1e-4 * s}) for s in range(1, 41)])
    b = write(f"{work}/bytes-\x01é", [(s, {"loss": 3 - 0.01 * s, "norm": 40000 + s}) for s in range(10, 90)])
    call(f"--plot={work}/all.svg", f"--plot-logs={a},{b}")
    texts, curves = picture(f"{work}/all.svg")
    check(a in texts and b.replace("\x01", ".") in texts, "the names are missing", texts)
    is_drawn(curves["loss", 0, False], [(s, 5 / s) for s in range(1, 41)], "a")
    is_drawn(curves["loss", 1, False], [(s, 3 - 0.01 * s) for s in range(10, 90)], "b")
    is_drawn(curves["gradient norm", 1, False], [(s, 40000 + s) for s in range(10, 90)], "norm")
    check(len(curves) == 4, "curves of nothing", curves.keys())


def check_thinned(work):
    """Neighbours are merged to their mean; the picture stays small, and the last values are in it."""
    n = 10 ** 5
    log = write(f"{work}/long", [(s, {"loss": s % 2, "lr": s / n}) for s in range(1, n + 1)])
    call(f"--plot={work}/long.svg", f"--plot-logs={log}")
    curves = picture(f"{work}/long.svg")[1]
    each = 64  # the least power of two of which 2000 points have room
    whole = [(each * i + (each + 1) / 2, 0.5) for i in range(n // each)] + [(n - (n % each - 1) / 2, 0.5)]
    check(len(curves["loss", 0, False]) == len(whole) < 2000, len(curves["loss", 0, False]), "points")
    is_drawn(curves["learning rate", 0, False], [(s, s / n) for s, _ in whole], "merged steps")
    check(all(abs(v - 0.5) < 1e-2 for _, v in curves["loss", 0, False]), "merged values")
    check(os.path.getsize(f"{work}/long.svg") < 200000, "the picture is large")


def check_strange(work):
    """One point, equal, huge, tiny and negative values, values that are none, a last line that is not whole."""
    nan = float("nan")
    for i, values in enumerate(([1.5], [0, 0], [-3, -3, -3], [1e300, -1e300], [1e-300, 3e-300], [1e15, 1e15 + 1], [5e-324, 0],
                                [1, nan, 2, math.inf, 3, -math.inf], [1.7e308, 1, 2], [1e9, 12345678901],
                                [0.002, 0.0019997, 0.002], [0.002, 0.00199999])):
        first = 123456789 if i % 2 else 7
        log = write(f"{work}/strange", [(first + s, {"loss": v}) for s, v in enumerate(values)])
        with open(log, "a") as out:
            out.write('{"step": 123456799, "lo')
        call(f"--plot={work}/strange.svg", f"--plot-logs={log}")
        want = [(first + s, v) for s, v in enumerate(values) if abs(v) <= 1e300]
        curve = picture(f"{work}/strange.svg")[1]["loss", 0, False]
        check(len(curve) == len(want), values, "drawn as", curve)
        if i not in (4, 5, 6, 11):  # values nearer to each other than an axis can tell
            is_drawn(curve, want, values)
    call(*SMALL, "--steps=1", f"--checkpoint={work}/one")
    call(f"--resume={work}/one", "--sample=0", "--held-out=50", f"--plot={work}/none.svg")
    check(list(picture(f"{work}/none.svg")[1]) == [("loss", 0, True)], "a run of no step has curves")


def check_huge(work):
    """Steps beside which a double has no place for 1."""
    for step in 2 ** 53, 2 ** 53 + 2, -2 ** 60, 2 ** 63 - 1:
        log = write(f"{work}/huge", [(step, {"loss": 1.5, "held_out_loss": 2})])
        call(f"--plot={work}/huge.svg", f"--plot-logs={log}")
        check(set(picture(f"{work}/huge.svg")[1]) == {("loss", 0, False), ("loss", 0, True)}, step, "is not drawn")
        check("nan" not in open(f"{work}/huge.svg").read(), step, "is drawn at no place")


def check_errors(work):
    """A picture that cannot be written is said once and ends nothing; what cannot be drawn is an error that names it."""
    for path, why in (f"{work}/no/run.svg", "No such file"), ("/dev/full", "not a regular file"), (work, "not a regular file"):
        out = call(*SMALL, "--steps=5", f"--plot={path}")
        check(out.count(f"--plot={path}: {why}") == 1 and "done: loss" in out, out)
    log = write(f"{work}/good", [(1, {"loss": 1})])
    write(f"{work}/empty", [])
    open(f"{work}/text", "w").write('{"step": 1}\nno JSON\n')
    for logs, why in (log, "without --plot"), (f"{work}/none", "No such file"), (f"{work}/empty", "no steps"), \
            (f"{work}/text", "text:2: not a line"), (",".join([log] * 9), "more than 8 runs"):
        plot = [] if "without" in why else [f"--plot={work}/bad.svg"]
        check(why in call(*plot, f"--plot-logs={logs}", code=1), why)
    check("would replace" in call(f"--plot={log}", f"--plot-logs={log}", code=1), "a log is replaced")
    check("has the same file" in call(*SMALL, f"--plot={log}", f"--log={log}", code=1), "a log is replaced")
    open(f"{work}/data", "w").write("a text that is nobody's picture")
    out = call(*SMALL, "--steps=5", f"--plot={work}/data")
    check(out.count("a file that is no picture has this name") == 1 and "done: loss" in out, out)
    check(open(f"{work}/data").read() == "a text that is nobody's picture", "a file that is no picture is replaced")
    check("no picture has this name" in call(f"--plot={work}/./good", f"--plot-logs={log}", code=1), "a log of another name is replaced")
    check(not os.path.exists(f"{work}/bad.svg") and len(rows(log)) == 1, "a picture of an error")


run(check_run, check_rewritten, check_resumed, check_logs, check_thinned, check_strange, check_huge, check_errors)
