/* Kernels of values.c: inputs, sums over outputs, and errors of the approximations. */
#include <stdint.h>

static __device__ uint64_t mix64(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

/* words[i] = first + i */
extern "C" __global__ void fill_numbers(uint32_t *words, uint32_t first, uint32_t n)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) words[i] = first + i;
}

/* Random operand k. Even places: any bits. Odd places: floats near 1, or small integers: `near` is
 * the operand's letter. */
extern "C" __global__ void fill_random(void *to, int nbytes, int near, uint32_t k, uint32_t n)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint64_t bits = mix64((uint64_t)k << 32 | i);
    const uint32_t exponent = (uint32_t)(bits >> 59); /* 0 to 31 */
    if (i & 1) switch (near) {
        case 'f': bits = (bits & 0x807fffffu) | (uint64_t)(111 + exponent) << 23; break;
        case 'd': bits = (bits & 0x800fffffffffffffu) | (uint64_t)(1007 + exponent) << 52; break;
        case 'h': bits = (bits & 0x83ffu) | (uint64_t)(8 + exponent % 15) << 10; break;
        case 'b': bits = (bits & 0x807fu) | (uint64_t)(111 + exponent) << 7; break;
        case 'w': bits = (bits & 0x83ff83ffu) | (uint64_t)(8 + exponent % 15) << 10 | (uint64_t)(8 + (exponent ^ 5) % 15) << 26; break;
        case 'x': bits = (bits & 0x807f807fu) | (uint64_t)(111 + exponent) << 7 | (uint64_t)(111 + (exponent ^ 5)) << 23; break;
        case 'r': case 's': bits &= 63; break;
        case 'l': bits &= 0xffffffffffu; break;
        }
    if (nbytes == 2) ((uint16_t *)to)[i] = (uint16_t)bits;
    else if (nbytes == 4) ((uint32_t *)to)[i] = (uint32_t)bits;
    else ((uint64_t *)to)[i] = bits;
}

/* *sum += mix64(mix64(first + i) ^ out[i]) over all i */
extern "C" __global__ void sum_outputs(const void *out, int nbytes, uint32_t first, uint32_t n, unsigned long long *sum)
{
    uint64_t mine = 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const uint64_t value = nbytes == 2 ? ((const uint16_t *)out)[i] : nbytes == 4 ? ((const uint32_t *)out)[i] : ((const uint64_t *)out)[i];
        mine += mix64(mix64((uint64_t)first + i) ^ value);
    }
    atomicAdd(sum, (unsigned long long)mine);
}

enum { RCP, RSQRT, SQRT, EX2, LG2, SIN, COS, TANH };

static __device__ double exact(int function, double x)
{
    switch (function) {
    case RCP: return 1 / x;
    case RSQRT: return 1 / sqrt(x);
    case SQRT: return sqrt(x);
    case EX2: return exp2(x);
    case LG2: return log2(x);
    case SIN: return sin(x);
    case COS: return cos(x);
    default: return tanh(x);
    }
}

/* Largest errors over the floats first .. first + n - 1, as bits of doubles: [0] in units of the last
 * place of a normal result, [1] absolute; only results of normal size, inputs at most `most` in size. */
extern "C" __global__ void errors(const float *out, int function, uint32_t first, uint32_t n, float most, unsigned long long *worst)
{
    double ulps = 0, absolute = 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const float x = __uint_as_float(first + i);
        if (!(fabsf(x) <= most) || fabsf(x) < 1.17549435e-38f) continue;
        const double want = exact(function, (double)x), got = (double)out[i];
        if (!(fabs(want) < 3.4e38) || !(fabs(want) >= 1.1754943508222875e-38) || !(fabs(got) < 3.5e38)) continue;
        const double error = fabs(got - want);
        const uint64_t exponent = (uint64_t)__double_as_longlong(fabs(want)) >> 52;
        const double unit = __longlong_as_double((long long)((exponent - 23) << 52));
        if (error > absolute) absolute = error;
        if (error / unit > ulps) ulps = error / unit;
    }
    atomicMax(&worst[0], (unsigned long long)__double_as_longlong(ulps));
    atomicMax(&worst[1], (unsigned long long)__double_as_longlong(absolute));
}
