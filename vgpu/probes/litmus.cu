/* Counts the outcomes of litmus tests: bin = the fields of the outcome, two bits each, first field
 * in the highest bits. One thread an instance. */
extern "C" __global__ void tally(const unsigned *out, const char *memory, unsigned nloads,
                                 unsigned nvariables, unsigned final, unsigned mask, unsigned stride,
                                 unsigned odd, unsigned ninstances, unsigned long long *bins)
{
    __shared__ unsigned count[4096];
    const unsigned round = blockIdx.y;
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x) count[i] = 0;
    __syncthreads();
    for (unsigned inst = blockIdx.x * blockDim.x + threadIdx.x; inst < ninstances;
         inst += gridDim.x * blockDim.x) {
        unsigned code = 0;
        for (unsigned i = 0; i < nloads; i++)
            code = code << 2 | (out[((size_t)round * ninstances + inst) * nloads + i] & 3);
        for (unsigned v = 0; final && v < nvariables; v++) {
            const unsigned place = ((inst * nvariables + v) * odd + 12345) & mask;
            const size_t at = ((size_t)round * (mask + 1) + place) * stride;
            code = code << 2 | (*(const unsigned *)(memory + at) & 3);
        }
        atomicAdd(&count[code & 4095], 1u);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 4096; i += blockDim.x)
        if (count[i]) atomicAdd(&bins[i], (unsigned long long)count[i]);
}
