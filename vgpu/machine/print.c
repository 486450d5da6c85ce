/* vprintf and __assertfail of kernels. Their parameters lie in the caller's frame of local memory:
 * of vprintf the address of the format, at 8 that of the arguments, at 16 the result; of
 * __assertfail message, file, line, function, size of a character. */
#include "machine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 1024 };

/* Up to the zero byte, or as much as there is room for. Returns how many bytes lie there; less than
 * the text's length + 1 and than room: memory ends before the zero byte. */
static uint32_t read_string(struct vg_warp *warp, uint32_t lane, uint64_t address, char *text,
                            uint32_t room)
{
    uint32_t n = 0;
    while (n + 1 < room && vg_peek(warp, lane, address + n, text + n, 1))
        if (text[n++] == '\0') return n;
    text[n] = '\0';
    return n;
}

struct printf {
    struct vg_warp *warp;
    const struct vg_instr *in;
    const char *format; /* what is left of it */
    uint64_t args;      /* where the next argument lies */
    uint32_t lane;
    bool failed; /* the fault is noted */
};

static void read_text(struct printf *p, uint64_t address, const char *what, char *text)
{
    const uint32_t n = read_string(p->warp, p->lane, address, text, TEXT);
    if (n + 1 == TEXT || (n > 0 && text[n - 1] == '\0')) return;
    vg_fail(p->warp, p->lane, p->in, VG_FAULT_ADDRESS,
            "printf reads %s at 0x%" PRIx64 ", where no memory lies", what, address + n);
    p->failed = true;
}

/* The next argument. They are packed as in a struct: 4 bytes, or 8 at multiples of 8. */
static uint64_t argument(struct printf *p, bool wide)
{
    const uint32_t nbytes = wide ? 8 : 4;
    uint64_t value = 0;
    p->args = (p->args + nbytes - 1) & ~(uint64_t)(nbytes - 1);
    if (!p->failed && !vg_peek(p->warp, p->lane, p->args, &value, nbytes)) {
        vg_fail(p->warp, p->lane, p->in, VG_FAULT_ADDRESS,
                "printf reads an argument of %u bytes at 0x%" PRIx64 ", where no memory lies",
                nbytes, p->args);
        p->failed = true;
    }
    p->args += nbytes;
    return value;
}

/* A width or a precision, digits or *: bounded, for nothing longer than TEXT is printed. */
static int number(struct printf *p)
{
    int64_t n = 0;
    if (*p->format == '*') {
        p->format++;
        n = (int32_t)argument(p, false);
    }
    for (; *p->format >= '0' && *p->format <= '9'; p->format++)
        if (n < TEXT) n = 10 * n + (*p->format - '0');
    return (int)(n > TEXT ? TEXT : n < -TEXT ? -TEXT : n);
}

static int integer(char kind, bool wide, const char *spec, uint64_t value, char *out, size_t room)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%sll%c", spec, kind);
    if ((kind == 'd' || kind == 'i') && !wide)
        return snprintf(out, room, whole, (long long)(int32_t)value);
    return snprintf(out, room, whole, (unsigned long long)value);
}

/* One conversion: the format stands behind the %. */
static int convert(struct printf *p, char *out, size_t room)
{
    char spec[40] = "%", whole[48], string[TEXT];
    size_t n = 1;
    bool wide = false;
    for (; *p->format != '\0' && strchr("-+ #0", *p->format) != NULL; p->format++)
        if (memchr(spec + 1, *p->format, n - 1) == NULL) spec[n++] = *p->format;
    if (*p->format == '*' || (*p->format >= '1' && *p->format <= '9'))
        n += (size_t)snprintf(spec + n, sizeof spec - n, "%d", number(p));
    if (*p->format == '.') {
        p->format++;
        const int digits = number(p); /* a negative one counts as none */
        if (digits >= 0) n += (size_t)snprintf(spec + n, sizeof spec - n, ".%d", digits);
    }
    for (; *p->format != '\0' && strchr("hlzjt", *p->format) != NULL; p->format++)
        wide = wide || *p->format != 'h';
    const char kind = *p->format;
    if (kind == '\0') return 0;
    p->format++;
    if (kind == '%') return snprintf(out, room, "%%");
    if (strchr("eEfFgGaAspcdiuoxX", kind) == NULL) return snprintf(out, room, "%%%c", kind);
    const bool floating = strchr("eEfFgGaA", kind) != NULL;
    const uint64_t value = argument(p, wide || floating || kind == 's' || kind == 'p');
    snprintf(whole, sizeof whole, "%s%c", spec, kind);
    if (p->failed) return 0;
    if (kind == 's') {
        if (value == 0) return snprintf(out, room, whole, "(null)");
        read_text(p, value, "the string of %s", string);
        return p->failed ? 0 : snprintf(out, room, whole, string);
    }
    if (kind == 'p') return snprintf(out, room, "0x%" PRIx64, value);
    if (floating) {
        double x;
        memcpy(&x, &value, 8);
        return snprintf(out, room, whole, x);
    }
    if (kind == 'c') return snprintf(out, room, whole, (int)value);
    return integer(kind, wide, spec, value, out, room);
}

static bool print(struct vg_warp *warp, uint32_t lane, const struct vg_instr *in, uint64_t params)
{
    const struct vg_machine_settings *settings = &warp->block->run->machine->settings;
    struct printf p = {.warp = warp, .in = in, .lane = lane};
    char text[TEXT], format[TEXT];
    uint64_t where = 0;
    size_t n = 0;
    int32_t result = 0;
    vg_peek(warp, lane, params, &where, 8);
    vg_peek(warp, lane, params + 8, &p.args, 8);
    read_text(&p, where, "its format", format);
    for (p.format = format; !p.failed && *p.format != '\0' && n + 1 < sizeof text;) {
        if (*p.format != '%') {
            text[n++] = *p.format++;
            continue;
        }
        p.format++;
        result++;
        const int more = convert(&p, text + n, sizeof text - n);
        if (more > 0) n += (size_t)more;
        if (n >= sizeof text) n = sizeof text - 1;
    }
    if (p.failed) return false;
    if (settings->print != NULL) settings->print(settings->arg, text, n);
    unsigned char *local = vg_local(warp, lane);
    if (local != NULL) memcpy(local + (params & ~VG_WINDOW_MASK) + 16, &result, 4);
    return true;
}

enum vg_step vg_print(struct vg_warp *warp, struct vg_fragment *fragment, const struct vg_instr *in,
                      uint32_t lanes)
{
    const uint64_t params = VG_LOCAL_WINDOW + fragment->frame->local + (uint64_t)in->imm;
    const uint64_t last = (params & ~VG_WINDOW_MASK) + (in->op == VG_PRINTF ? 20 : 40);
    if (last > warp->block->run->local_room)
        return vg_fail(warp, vg_first(lanes), in, VG_FAULT_STACK,
                       "parameters of printf or assert lie beyond the thread's local memory");
    if (in->op == VG_PRINTF) {
        VG_FOR_LANES(i, lanes)
        if (!print(warp, i, in, params)) return VG_FAILED;
        return VG_NEXT;
    }
    const uint32_t lane = vg_first(lanes);
    uint64_t address[3] = {0};
    uint32_t line = 0;
    char text[3][256];
    vg_peek(warp, lane, params, &address[0], 8);
    vg_peek(warp, lane, params + 8, &address[1], 8);
    vg_peek(warp, lane, params + 16, &line, 4);
    vg_peek(warp, lane, params + 24, &address[2], 8);
    for (int i = 0; i < 3; i++)
        if (read_string(warp, lane, address[i], text[i], sizeof text[i]) == 0)
            snprintf(text[i], sizeof text[i], "(nothing at 0x%" PRIx64 ")", address[i]);
    return vg_fail(warp, lane, in, VG_FAULT_ASSERT, "%s:%u: %s: assertion `%s' failed", text[1],
                   line, text[2], text[0]);
}
