// Calls, tables of branches, printf, assert, local arrays, initialised variables.
#include <cassert>
#include <cstdio>
__constant__ int table[4] = {1, 2, 3, 4};
__device__ const char *text = "text";
__device__ __noinline__ int twice(int x, int *y)
{
    *y = x;
    return 2 * x;
}
__device__ __noinline__ long power(long x, int n)
{
    return n == 0 ? 1 : x * power(x, n - 1);
}
typedef int operation(int);
__device__ __noinline__ int increment(int x) { return x + 1; }
__device__ __noinline__ int decrement(int x) { return x - 1; }
__device__ operation *operations[2] = {increment, decrement};
extern "C" __global__ void calls(int *out, int n)
{
    int y;
    out[0] = twice(n, &y) + y + table[n & 3];
    out[1] = (int)power(n, 5);
    out[2] = operations[n & 1](n);
    printf("%d of %s\n", n, text);
    assert(n > 0);
}
extern "C" __global__ void branches(int *out, int n)
{
    int local[16];
    for (int i = 0; i < 16; i++) local[i] = i * n;
    switch (n) {
    case 0: out[0] = local[n & 15]; break;
    case 1: out[1] = out[0] / 3; break;
    case 2: out[2] = out[1] * 7 % n; break;
    case 3: out[n] = __popc(n); break;
    case 4: out[5] = __clz(n); break;
    case 5: asm volatile("trap;"); break;
    case 6: out[local[n & 7]] = n; break;
    case 7: out[3] ^= 5; break;
    default: return;
    }
    out[9] = local[out[8] & 15];
}
