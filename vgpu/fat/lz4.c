/* LZ4 blocks: sequences of literals and copies of what was written before. */
#include <string.h>

#include <vgpu/fat/fat.h>

enum { LEAST_MATCH = 4, EXTENDED = 15 };

struct input {
    const unsigned char *at, *end;
};

/* A length of 15 goes on in the bytes that follow, as long as they are 255. */
static int extend(struct input *in, size_t *length)
{
    if (*length != EXTENDED) return 0;
    for (;;) {
        if (in->at == in->end) return -1;
        const unsigned char more = *in->at++;
        *length += more;
        if (more != 255) return 0;
    }
}

int vg_lz4_decode(const unsigned char *from, size_t nfrom, unsigned char *to, size_t nto)
{
    struct input in = {from, from + nfrom};
    size_t done = 0;
    while (in.at < in.end) {
        const unsigned char token = *in.at++;
        size_t literals = token >> 4, match = token & 15;
        if (extend(&in, &literals)) return -1;
        if (literals > (size_t)(in.end - in.at) || literals > nto - done) return -1;
        memcpy(to + done, in.at, literals);
        in.at += literals;
        done += literals;
        if (in.at == in.end) break; /* the last sequence has no match */
        if (in.end - in.at < 2) return -1;
        const size_t back = (size_t)in.at[0] | (size_t)in.at[1] << 8;
        in.at += 2;
        if (extend(&in, &match)) return -1;
        match += LEAST_MATCH;
        if (back == 0 || back > done || match > nto - done) return -1;
        for (size_t i = 0; i < match; i++, done++) to[done] = to[done - back]; /* may overlap */
    }
    return done == nto ? 0 : -1;
}
