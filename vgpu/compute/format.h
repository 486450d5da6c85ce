/* Floats of any format, bit by bit: what conversions and the narrow types need.
 *
 * A number is unpacked into sign, exponent and a significand of 64 bits, and packed into a format
 * under any rounding. A double that was rounded to odd (its last bit set if anything was lost)
 * stands for the exact value: packing it into a format with at most 51 bits of significand rounds
 * only once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
 * using rounding to odd", 2008). */
#ifndef VGPU_FORMAT_H
#define VGPU_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include <vgpu/code.h>

struct vg_format {
    uint8_t exponent_bits, fraction_bits;
    bool no_infinity; /* E4M3: the largest exponent holds numbers, and one NaN */
    uint32_t nan;     /* the NaN that instructions give */
};
extern const struct vg_format vg_f16_format, vg_bf16_format, vg_f32_format, vg_tf32_format,
    vg_e4m3_format, vg_e5m2_format;

enum vg_kind { VG_KIND_ZERO, VG_KIND_NUMBER, VG_KIND_INFINITE, VG_KIND_NAN };

struct vg_number {
    enum vg_kind kind;
    bool sign;
    int exponent;         /* value = significand / 2^63 * 2^exponent */
    uint64_t significand; /* its highest bit is set */
};

struct vg_number vg_unpack_double(double x);
struct vg_number vg_unpack(const struct vg_format *format, uint32_t bits);
struct vg_number vg_unpack_integer(bool sign, uint64_t magnitude);
/* finite: .satfinite, the largest number instead of infinity. */
uint32_t vg_pack(const struct vg_format *format, struct vg_number x, enum vg_round round,
                 bool finite);
/* Rounds to an integer of the type, clamping; NaN gives 0, for 64 bits the highest bit (as an H100
 * does). */
uint64_t vg_to_integer(struct vg_number x, enum vg_type type, enum vg_round round);

/* Whether .ftz flushes a result: it is small even when it is rounded with any exponent (as an H100
 * does). */
bool vg_is_small(const struct vg_format *format, double exact, enum vg_round round);

double vg_value(const struct vg_format *format, uint32_t bits); /* exact */
/* Sums, quotients and roots of doubles rounded to odd. */
double vg_odd_add(double a, double b);
double vg_odd_divide(double a, double b);
double vg_odd_sqrt(double a);

#endif
