"""Elements of NCCL's types as bytes, and what its operations make of them: the part of the tests of libnccl.so.2 that computes by itself.

Numbers are so small that every partial result is exact in every type, whatever the order of folding.
"""
import struct

# name, bytes, what struct calls it; a float without such a name has exponent and mantissa bits
TYPES = [("int8", 1, "b"), ("uint8", 1, "B"), ("int32", 4, "i"), ("uint32", 4, "I"), ("int64", 8, "q"), ("uint64", 8, "Q"),
         ("float16", 2, "e"), ("float32", 4, "f"), ("float64", 8, "d"), ("bfloat16", 2, (8, 7)), ("float8e4m3", 1, (4, 3)),
         ("float8e5m2", 1, (5, 2))]
SUM, PROD, MAX, MIN, AVG, PREMUL = range(6)
OPS = ["sum", "prod", "max", "min", "avg", "pre-multiplied sum"]


def is_float(kind):
    return kind >= 6


def is_signed(kind):
    return not TYPES[kind][0].startswith("uint")


def encode_float(value, exponent_bits, mantissa_bits):
    """The pattern of a number that the format has exactly, with a zero or a normal exponent."""
    if value == 0:
        return 0
    sign, size, exponent = value < 0, abs(value), 0
    while size >= 2:
        size, exponent = size / 2, exponent + 1
    while size < 1:
        size, exponent = size * 2, exponent - 1
    mantissa = (size - 1) * 2 ** mantissa_bits
    assert mantissa == int(mantissa), f"{value} is not exact in {mantissa_bits} bits"
    biased = exponent + 2 ** (exponent_bits - 1) - 1
    assert 0 < biased < 2 ** exponent_bits - 1
    return (int(sign) << (exponent_bits + mantissa_bits)) | (biased << mantissa_bits) | int(mantissa)


def encode(kind, values):
    """The values as one array of the type."""
    _, size, form = TYPES[kind]
    if isinstance(form, str):
        return struct.pack(f"<{len(values)}{form}", *values)
    return b"".join(encode_float(v, *form).to_bytes(size, "little") for v in values)


def draw(random, kind, op, nranks):
    """A number that a rank puts into a reduction, or into a copy where op is None."""
    low = -1 if is_signed(kind) else 0
    if op is None:
        return random.randint(4 * low, 7)
    if op == PROD:
        return random.choice([1, 2, -1, -2] if low else [1, 2])
    if op in (MAX, MIN):
        return random.randint(7 * low, 7)
    if op == AVG and is_float(kind):
        return nranks * random.randint(-1, 1)
    return random.randint(low, 1)


def factor(rank):
    """The scalar of a rank's pre-multiplied sum."""
    return 1 + rank % 2


def reduce(kind, op, values):
    """The result for one element, of which values[r] is rank r's."""
    if op == PROD:
        result = 1
        for value in values:
            result *= value
        return result
    if op in (MAX, MIN):
        return max(values) if op == MAX else min(values)
    if op == PREMUL:
        return sum(v * factor(r) for r, v in enumerate(values))
    if op == SUM:
        return sum(values)
    total = sum(values)
    if is_float(kind):
        return total / len(values)
    return abs(total) // len(values) * (-1 if total < 0 else 1)
