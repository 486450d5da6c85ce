/* vprintf and __assertfail of kernels. Their parameters lie in the caller's frame of local memory:
 * of vprintf the address of the format, at 8 that of the arguments, at 16 the result; of
 * __assertfail message, file, line, function, size of a character. */
#include "machine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT = 1024 };

static void read_string(struct vg_warp *warp, uint32_t lane, uint64_t address, char *text,
                        uint32_t room)
{
    uint32_t n = 0;
    if (address == 0) {
        snprintf(text, room, "(null)");
        return;
    }
    while (n + 1 < room && vg_peek(warp, lane, address + n, text + n, 1) && text[n] != '\0') n++;
    text[n] = '\0';
}

/* One conversion: *format stands behind the %. Arguments are packed as in a struct: 4 bytes, or 8
 * at multiples of 8. */
static int convert(struct vg_warp *warp, uint32_t lane, const char **format, uint64_t *args,
                   char *out, size_t room)
{
    char spec[48] = "%", string[TEXT];
    size_t n = 1;
    bool wide = false;
    const char *p = *format;
    for (; *p != '\0' && strchr("-+ #0123456789.*hlzjt", *p) != NULL; p++) {
        if (*p == '*') {
            int32_t number = 0;
            vg_peek(warp, lane, *args, &number, 4);
            *args += 4;
            n += (size_t)snprintf(spec + n, sizeof spec - n, "%d", number);
        } else if (strchr("lzjt", *p) != NULL) {
            wide = true;
        } else if (*p != 'h') {
            spec[n++] = *p;
        }
        if (n > sizeof spec - 16) break;
    }
    const char kind = *p;
    *format = kind == '\0' ? p : p + 1;
    if (kind == '\0') return 0;
    if (kind == '%') return snprintf(out, room, "%%");
    const bool floating = strchr("eEfFgGaA", kind) != NULL;
    wide = wide || floating || kind == 's' || kind == 'p';
    if (wide) *args = (*args + 7) & ~UINT64_C(7);
    uint64_t value = 0;
    vg_peek(warp, lane, *args, &value, wide ? 8 : 4);
    *args += wide ? 8 : 4;
    if (kind == 's') {
        read_string(warp, lane, value, string, sizeof string);
        spec[n] = 's';
        return snprintf(out, room, spec, string);
    }
    if (kind == 'p') return snprintf(out, room, "0x%" PRIx64, value);
    if (floating) {
        double x;
        memcpy(&x, &value, 8);
        spec[n] = kind;
        return snprintf(out, room, spec, x);
    }
    if (kind == 'c') {
        spec[n] = 'c';
        return snprintf(out, room, spec, (int)value);
    }
    if (strchr("diuoxX", kind) == NULL) return snprintf(out, room, "%%%c", kind);
    spec[n] = spec[n + 1] = 'l';
    spec[n + 2] = kind;
    if ((kind == 'd' || kind == 'i') && !wide)
        return snprintf(out, room, spec, (long long)(int32_t)value);
    return snprintf(out, room, spec, (unsigned long long)value);
}

static void print(struct vg_warp *warp, uint32_t lane, uint64_t params)
{
    const struct vg_machine_settings *settings = &warp->block->run->machine->settings;
    char text[TEXT], format[TEXT];
    uint64_t where = 0, args = 0;
    size_t n = 0;
    int32_t result = 0;
    vg_peek(warp, lane, params, &where, 8);
    vg_peek(warp, lane, params + 8, &args, 8);
    read_string(warp, lane, where, format, sizeof format);
    for (const char *p = format; *p != '\0' && n + 1 < sizeof text;) {
        if (*p != '%') {
            text[n++] = *p++;
            continue;
        }
        p++;
        result++;
        const int more = convert(warp, lane, &p, &args, text + n, sizeof text - n);
        if (more > 0) n += (size_t)more;
        if (n >= sizeof text) n = sizeof text - 1;
    }
    if (settings->print != NULL) settings->print(settings->arg, text, n);
    unsigned char *local = vg_local(warp, lane);
    if (local != NULL) memcpy(local + (params & ~VG_WINDOW_MASK) + 16, &result, 4);
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
        VG_FOR_LANES(i, lanes) print(warp, i, params);
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
    for (int i = 0; i < 3; i++) read_string(warp, lane, address[i], text[i], sizeof text[i]);
    return vg_fail(warp, lane, in, VG_FAULT_ASSERT, "%s:%u: %s: assertion `%s' failed", text[1],
                   line, text[2], text[0]);
}
