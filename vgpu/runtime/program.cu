// A program of the CUDA runtime as nvcc compiles it: vector sum, reductions, a scan, a matrix product, a stencil with constants, launches of
// all kinds. program_test.sh runs it. It prints what it did, and ends with status 1 at the first wrong value.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace cg = cooperative_groups;

#define OK(call)                                                                                   \
    do {                                                                                           \
        const cudaError_t error = call;                                                            \
        if (error != cudaSuccess) {                                                                \
            printf("%s: %s (%s)\n", #call, cudaGetErrorName(error), cudaGetErrorString(error));    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void expect(bool right, const char *what)
{
    printf("%s: %s\n", what, right ? "right" : "WRONG");
    if (!right) exit(1);
}

// Memory of the device with a copy on the host.
struct Floats {
    float *device;
    std::vector<float> host;
    explicit Floats(int n) : host(n)
    {
        for (int i = 0; i < n; i++) host[i] = (float)(i * 7 % 31);
        OK(cudaMalloc(&device, n * sizeof(float)));
        OK(cudaMemcpy(device, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    }
    ~Floats()
    {
        OK(cudaFree(device));
    }
    std::vector<float> read() const
    {
        std::vector<float> values(host.size());
        OK(cudaMemcpy(values.data(), device, values.size() * sizeof(float), cudaMemcpyDeviceToHost));
        return values;
    }
};

__global__ void vector_add(float *out, const float *a, const float *b, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}

static void check_vector_add()
{
    const int n = 1000;
    Floats a(n), b(n), out(n);
    vector_add<<<(n + 127) / 128, 128>>>(out.device, a.device, b.device, n);
    OK(cudaGetLastError());
    const std::vector<float> got = out.read();
    bool right = true;
    for (int i = 0; i < n; i++) right &= got[i] == a.host[i] + b.host[i];
    expect(right, "vector sum");
}

template <typename T> __global__ void reduce(T *out, const T *in, int n)
{
    extern __shared__ T part[];
    T sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}

static void check_reduce()
{
    const int n = 3000;
    Floats in(n), out(1);
    int grid = 0, block = 0;
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, reduce<float>, 1024 * sizeof(float), 128));
    OK(cudaMemset(out.device, 0, sizeof(float)));
    reduce<<<4, block, block * sizeof(float)>>>(out.device, in.device, n);
    float sum = 0;
    for (float value : in.host) sum += value;
    expect(out.read()[0] == sum, "reduction in shared memory");
}

__global__ void scan(float *out, const float *in)
{
    __shared__ float part[256];
    const int i = threadIdx.x;
    part[i] = in[i];
    for (int step = 1; step < 256; step *= 2) {
        __syncthreads();
        const float before = i >= step ? part[i - step] : 0;
        __syncthreads();
        part[i] += before;
    }
    out[i] = part[i];
}

static void check_scan()
{
    Floats in(256), out(256);
    scan<<<1, 256>>>(out.device, in.device);
    const std::vector<float> got = out.read();
    bool right = true;
    float sum = 0;
    for (int i = 0; i < 256; i++) right &= got[i] == (sum += in.host[i]);
    expect(right, "scan");
}

const int TILE = 8, SIDE = 24;

__global__ void multiply(float *out, const float *a, const float *b)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int t = 0; t < SIDE; t += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * SIDE + t + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * SIDE + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    out[row * SIDE + column] = sum;
}

static void check_multiply()
{
    Floats a(SIDE * SIDE), b(SIDE * SIDE), out(SIDE * SIDE);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(SIDE / TILE, SIDE / TILE);
    config.blockDim = dim3(TILE, TILE);
    OK(cudaLaunchKernelEx(&config, multiply, out.device, (const float *)a.device, (const float *)b.device));
    const std::vector<float> got = out.read();
    bool right = true;
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            float sum = 0;
            for (int k = 0; k < SIDE; k++) sum += a.host[i * SIDE + k] * b.host[k * SIDE + j];
            right &= got[i * SIDE + j] == sum;
        }
    expect(right, "matrix product");
}

__constant__ float weights[3];
__device__ int launches;
__device__ float table[4] = {1, 2, 3, 4};

__global__ void stencil(float *out, const float *in, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) launches++;
    if (i > 0 && i < n - 1) out[i] = weights[0] * in[i - 1] + weights[1] * in[i] + weights[2] * in[i + 1];
}

static void check_variables()
{
    const int n = 128;
    const float chosen[3] = {1, 2, 4};
    float last;
    int count = -1;
    Floats in(n), out(n);
    OK(cudaMemcpyToSymbol(weights, chosen, sizeof chosen));
    for (int i = 0; i < 2; i++) stencil<<<1, n>>>(out.device, in.device, n);
    OK(cudaMemcpyFromSymbol(&count, launches, sizeof count));
    OK(cudaMemcpyFromSymbol(&last, table, sizeof last, 3 * sizeof last));
    const std::vector<float> got = out.read();
    bool right = count == 2 && last == 4;
    for (int i = 1; i < n - 1; i++) right &= got[i] == in.host[i - 1] + 2 * in.host[i] + 4 * in.host[i + 1];
    expect(right, "constants and variables");
}

// Each round every block needs what its neighbour stored in the round before.
__global__ void rounds(float *values)
{
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < 4; round++) {
        const float next = values[(blockIdx.x + 1) % gridDim.x];
        grid.sync();
        if (threadIdx.x == 0) values[blockIdx.x] = next + 1;
        grid.sync();
    }
}

static void check_cooperative()
{
    Floats values(4);
    void *args[] = {&values.device};
    OK(cudaLaunchCooperativeKernel((const void *)rounds, dim3(4), dim3(32), args, 0, 0));
    const std::vector<float> got = values.read();
    bool right = true;
    for (int i = 0; i < 4; i++) right &= got[i] == values.host[i] + 4;
    expect(right, "cooperative groups");
}

__global__ void add_one(int *value)
{
    atomicAdd(value, 1);
}

static void check_streams()
{
    cudaStream_t streams[2];
    cudaEvent_t event;
    int *value, result = 0;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (cudaStream_t &stream : streams) OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&value, sizeof *value, streams[0]));
    OK(cudaMemsetAsync(value, 0, sizeof *value, streams[0]));
    OK(cudaEventRecord(event, streams[0]));
    OK(cudaStreamWaitEvent(streams[1], event));
    for (cudaStream_t stream : streams) add_one<<<2, 32, 0, stream>>>(value);
    OK(cudaEventRecord(event, streams[1]));
    OK(cudaStreamWaitEvent(streams[0], event));
    OK(cudaMemcpyAsync(&result, value, sizeof result, cudaMemcpyDeviceToHost, streams[0]));
    OK(cudaFreeAsync(value, streams[0]));
    OK(cudaStreamSynchronize(streams[0]));
    expect(result == 128, "two streams");
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaMalloc(&value, sizeof *value));
    OK(cudaMemset(value, 0, sizeof *value));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
    add_one<<<1, 32, 0, streams[0]>>>(value);
    OK(cudaStreamEndCapture(streams[0], &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(exec, streams[0]));
    OK(cudaStreamSynchronize(streams[0]));
    OK(cudaMemcpy(&result, value, sizeof result, cudaMemcpyDeviceToHost));
    expect(result == 96, "a graph");
    OK(cudaFree(value));
}

int main()
{
    check_vector_add();
    check_reduce();
    check_scan();
    check_multiply();
    check_variables();
    check_cooperative();
    check_streams();
    add_one<<<1, 2000>>>(nullptr);
    expect(cudaGetLastError() == cudaErrorInvalidConfiguration, "a block that is too large");
    return 0;
}
