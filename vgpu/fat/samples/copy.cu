/* The kernel of these samples. */ extern "C" __global__ void copy(int *o, const int *i, int n) { int k = blockIdx.x * blockDim.x + threadIdx.x; if (k < n) o[k] = i[k]; }
