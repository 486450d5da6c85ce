"""The pictures of --plan --svg: well-formed, with the ranks, the micro-batches and the memory that the plan prints.
TRAIN: tutti-train."""
import os
import re
import subprocess
import xml.etree.ElementTree as xml

from pictures import SVG, check, run

KINDS = ["weights", "gradients", "optimizer", "gathered", "activations", "snapshot"]


def call(*options, code=0):
    done = subprocess.run([os.environ["TRAIN"], *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    check(done.returncode == code, options, "ended with", done.returncode, done.stdout)
    return done.stdout


def box(rect):
    """left, right and row of a rectangle"""
    return float(rect.get("x")), float(rect.get("x")) + float(rect.get("width")), float(rect.get("y"))


def check_texts(root):
    """Texts end within the picture, and before what follows in their line: a letter has 7 pixels at most, but for a few."""
    width = float(root.get("width"))
    texts = [(float(t.get("y")), float(t.get("x")), t) for t in root.iter(SVG + "text") if t.get("class") in ("name", "legend", "sum")]
    for y, x, t in texts:
        end = x + 6.9 * len(t.text)
        after = [x2 for y2, x2, _ in texts if y2 == y and x2 > x]
        check(end <= min(after + [width]), t.text, "ends at", end, "but the next text begins at", min(after + [width]))


def draw(work, *options):
    """What --plan prints, and the rectangles of its picture by class."""
    path = f"{work}/plan.svg"
    out = call("--plan", *options, f"--svg={path}")
    check(out.endswith(f"\nwrote {path}\n"), out)
    root = xml.parse(path).getroot()
    check(root.tag == SVG + "svg" and "href" not in open(path).read(), path, "needs other files")
    rects = {}
    for rect in root.iter(SVG + "rect"):
        left, right, top = box(rect) if rect.get("x") else (0, 0, 0)
        check(0 <= left <= right <= float(root.get("width")) + 0.01 and 0 <= top <= float(root.get("height")) - 20, "outside", rect.attrib)
        rects.setdefault(rect.get("class").split()[0], []).append(rect)
    check_texts(root)
    return out, root, rects


def rows(rects):
    """The rectangles of each row, from the left; none lies on another."""
    found = {}
    for rect in sorted(rects, key=box):
        found.setdefault(box(rect)[2], []).append(rect)
    for row in found.values():
        for one, other in zip(row, row[1:]):
            check(box(one)[1] <= box(other)[0] + 0.02, "one on the other", one.attrib, other.attrib)
    return [found[y] for y in sorted(found)]


def check_mesh(rects, nranks, out, shards):
    titles = [r.find(SVG + "title").text for r in rects["rank"]]
    printed = [re.sub(r" +", " ", line).strip() for line in re.findall(r"\n  (rank +\d+ .*)", out)]
    check(len(titles) == nranks, len(titles), "boxes")
    check([t.replace(",", "") for t in titles] == printed[:nranks], titles, printed)
    colors = {}
    for rect, title in zip(rects["rank"], titles):
        at = dict(re.findall(r"(\w+) (\d+)", title))
        colors.setdefault(rect.get("class"), set()).add(tuple(at[axis] for axis in shards))
    check(all(len(places) == 1 for places in colors.values()), colors)
    rows(rects["rank"])


def check_pipeline(rects, stages, batches):
    lines = rows(rects["forward"] + rects["backward"])
    check(len(lines) == stages, len(lines), "lines of", stages, "stages")
    for line in lines:
        for kind in "forward", "backward":
            check(sum(r.get("class").startswith(kind) for r in line) == batches, kind, "passes")
        widths = {k: max(float(r.get("width")) for r in line if r.get("class").startswith(k)) for k in ("forward", "backward")}
        check(1.8 < widths["backward"] / widths["forward"] < 2.2, widths)
    # The first stage begins first, the last one last; the last stage's backward pass follows its forward pass.
    begins = [box(line[0])[0] for line in lines]
    check(begins == sorted(begins) and begins[0] < begins[-1], begins)


def check_memory(root, rects, out, stages):
    table = out.split("\nMemory of a rank in MiB\n")[1].split("\n\n")[0]
    wanted = {int(line.split()[0]): [float(v) for v in line.split()[1:]] for line in re.findall(r"^ +\d+ .*", table, re.M)}
    bars = rows([r for kind in KINDS for r in rects.get(kind, [])])
    sums = [t.text for t in root.iter(SVG + "text") if t.get("class") == "sum"]
    check(len(bars) == len(stages) == len(sums), len(bars), "bars")
    each = max(wanted[s][-1] for s in stages) / max(box(bar[-1])[1] - box(bar[0])[0] for bar in bars)
    for bar, stage, total in zip(bars, stages, sums):
        check(total == f"{wanted[stage][-1]:.1f} MiB", total, "of", wanted[stage])
        widths = {r.get("class").split()[0]: float(r.get("width")) for r in bar}
        for kind, mib in zip(KINDS, wanted[stage]):
            check(abs(widths.get(kind, 0) * each - mib) <= 0.1 + 0.01 * each, kind, "of stage", stage, widths.get(kind), mib)


def check_plan(work):
    out, root, rects = draw(work, "--ranks=32", "--pp=4", "--fsdp=2", "--tp=2", "--layers=8", "--every=10", "--checkpoint=runs", "--pipeline=gpipe", "--reshard=always")
    check_mesh(rects, 32, out, ["fsdp"])
    check_pipeline(rects, 4, int(re.search(r"stages, (\d+) micro-batches of a step", out).group(1)))
    check_memory(root, rects, out, range(4))
    check("32 ranks = pp 4 x dp 2 x fsdp 2 x tp 2; FSDP (ZeRO-3); adamw" in root.find(SVG + "title").text, root.find(SVG + "title").text)


def check_alone(work):
    out, root, rects = draw(work, "--layers=3", "--model=llama", "--optimizer=sgd")
    check(len(rects["rank"]) == 1 and "forward" not in rects, rects.keys())
    check_memory(root, rects, out, [0])


def check_large(work):
    """A picture of many ranks, stages and micro-batches is of some of them, says so, and stays small."""
    out, root, rects = draw(work, "--ranks=64000", "--pp=500", "--tp=8", "--heads=8", "--layers=1000",
                            "--batch=1048576", "--micro-batch=1", "--pipeline=gpipe", "--zero=1")
    check(len(rects["rank"]) == 16 * 64 and len(rects["forward"]) == 16 * 32, len(rects["rank"]), len(rects["forward"]))
    check_memory(root, rects, out, [*range(8), *range(492, 500)])
    names = " ".join(t.text for t in root.iter(SVG + "text") if t.get("class") == "name")
    for says in "first 64 of 128 ranks", "16 of 500 stages", "drawn with 16 stages and 32 micro-batches":
        check(says in names, says, "is not in", names)
    check(os.path.getsize(f"{work}/plan.svg") < 500000, "the picture is large")


def check_errors(work):
    """Only pictures are replaced; what cannot be written is an error that names it."""
    data = f"{work}/data"
    open(data, "w").write("a text that is nobody's picture")
    check(f"--svg={data}: a file that is no picture has this name" in call("--plan", f"--svg={data}", code=1), "no error")
    check(open(data).read() == "a text that is nobody's picture", "a file that is no picture is replaced")
    for path, why in (f"{work}/no/plan.svg", "No such file"), ("/dev/full", "not a regular file"), (work, "not a regular file"):
        check(f"--svg={path}: {why}" in call("--plan", f"--svg={path}", code=1), path)
    for _ in range(2):
        call("--plan", f"--svg={work}/plan.svg")
    check(sorted(os.listdir(work)) == ["data", "plan.svg"], os.listdir(work))
    check("--svg=x is for --plan" in call("--svg=x", "--steps=1", code=1), "--svg without --plan")


run(check_plan, check_alone, check_large, check_errors)
