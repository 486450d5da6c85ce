/* Data parallelism: cuts the gradients into buckets and reduces each as soon as it is complete. */
#include "ddp.h"

#include <stdlib.h>

#include "../watch/clock.h"

/* Cuts the registry, last tensor first, into buckets. */
static void cut_buckets(struct tr_ddp *ddp, size_t bucket_bytes)
{
    const struct tr_params *params = ddp->params;
    size_t end = params->total;
    struct tr_bucket *bucket = NULL;
    for (int p = params->n - 1; p >= 0; --p) {
        const struct tr_param *param = &params->items[p];
        const struct tr_layout gradient = tr_layout_gradient(param->layout, tr_layout_batch);
        ddp->bucket_of[p] = -1;
        if (!tr_layout_is(&gradient, TR_DP, TR_PARTIAL)) {
            bucket = NULL; /* a bucket is one range: it cannot span what must not be summed */
        } else {
            if (!bucket) bucket = &ddp->buckets[ddp->nbuckets++];
            ddp->bucket_of[p] = (int)(bucket - ddp->buckets);
            bucket->offset = param->offset;
            bucket->first_param = p;
            bucket->nparams++;
            bucket->count += end - param->offset;
            if (bucket->count * sizeof(float) >= bucket_bytes) bucket = NULL;
        }
        end = param->offset;
    }
}

tr_status tr_ddp_init(struct tr_ddp *ddp, const struct tr_mesh *mesh,
                      const struct tr_params *params, float *gradients, size_t bucket_bytes)
{
    *ddp = (struct tr_ddp){.mesh = mesh, .params = params, .gradients = gradients};
    if (mesh->size[TR_DP] == 1) return TR_OK;
    ddp->buckets = calloc((size_t)params->n, sizeof *ddp->buckets);
    ddp->bucket_of = calloc((size_t)params->n, sizeof *ddp->bucket_of);
    if (!ddp->buckets || !ddp->bucket_of) return tr_fail("out of memory for the buckets");
    cut_buckets(ddp, bucket_bytes);
    TR_TRY(tr_mesh_check(mesh, tuttiStreamCreate(&ddp->stream), "making a stream"));
    for (int b = 0; b < ddp->nbuckets; ++b) {
        TR_TRY(tr_mesh_check(mesh, tuttiEventCreate(&ddp->buckets[b].begin), "making an event"));
        TR_TRY(tr_mesh_check(mesh, tuttiEventCreate(&ddp->buckets[b].end), "making an event"));
    }
    return TR_OK;
}

void tr_ddp_fini(struct tr_ddp *ddp)
{
    if (ddp->stream) tuttiStreamDestroy(ddp->stream);
    for (int b = 0; b < ddp->nbuckets; ++b) {
        if (ddp->buckets[b].begin) tuttiEventDestroy(ddp->buckets[b].begin);
        if (ddp->buckets[b].end) tuttiEventDestroy(ddp->buckets[b].end);
    }
    free(ddp->buckets);
    free(ddp->bucket_of);
    *ddp = (struct tr_ddp){0};
}

void tr_ddp_begin(struct tr_ddp *ddp)
{
    ddp->launched = 0;
    ddp->status = TR_OK;
    for (int b = 0; b < ddp->nbuckets; ++b) ddp->buckets[b].waiting = ddp->buckets[b].nparams;
}

static tr_status launch(struct tr_ddp *ddp, const struct tr_bucket *bucket)
{
    static const char what[] = "reducing a bucket of gradients";
    float *range = ddp->gradients + bucket->offset;
    TR_TRY(tr_mesh_check(ddp->mesh, tuttiEventRecord(bucket->begin, ddp->stream), what));
    TR_TRY(tr_mesh_check(ddp->mesh,
                         tuttiAllReduce(range, range, bucket->count, tuttiFloat32, tuttiSum,
                                        ddp->mesh->world, ddp->stream),
                         what));
    return tr_mesh_check(ddp->mesh, tuttiEventRecord(bucket->end, ddp->stream), what);
}

void tr_ddp_ready(void *arg, int param)
{
    struct tr_ddp *ddp = arg;
    if (!ddp->nbuckets || ddp->bucket_of[param] < 0) return;
    ddp->buckets[ddp->bucket_of[param]].waiting--;
    while (ddp->launched < ddp->nbuckets && ddp->buckets[ddp->launched].waiting == 0) {
        const tr_status status = launch(ddp, &ddp->buckets[ddp->launched++]);
        if (ddp->status == TR_OK) ddp->status = status;
    }
}

tr_status tr_ddp_finish(struct tr_ddp *ddp, double *statistics, size_t count)
{
    if (!ddp->nbuckets) return TR_OK;
    TR_TRY(ddp->status);
    const double before = tr_clock_seconds();
    TR_TRY(tr_mesh_check(ddp->mesh,
                         tuttiAllReduce(statistics, statistics, count, tuttiFloat64, tuttiSum,
                                        ddp->mesh->world, ddp->stream),
                         "summing the losses"));
    TR_TRY(tr_mesh_check(ddp->mesh, tuttiStreamSynchronize(ddp->stream), "reducing the gradients"));
    ddp->waited_seconds += tr_clock_seconds() - before;
    for (int b = 0; b < ddp->nbuckets; ++b) {
        float ms = 0;
        TR_TRY(tr_mesh_check(ddp->mesh,
                             tuttiEventElapsedTime(&ms, ddp->buckets[b].begin, ddp->buckets[b].end),
                             "timing a bucket"));
        ddp->reduce_seconds += (double)ms * 1e-3;
    }
    return TR_OK;
}
