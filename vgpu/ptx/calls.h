/* call and brx with their tables, and what is not supported. */
#ifndef VGPU_PTX_CALLS_H
#define VGPU_PTX_CALLS_H

#include <vgpu/ptx/reader.h>

/* `name: .branchtargets A, B;` from the directive on. */
void vg_ptx_branchtargets_read(struct vg_reader *r, const struct vg_token *name);
/* .calltargets: the symbol gets the first target's prototype. */
void vg_ptx_calltargets_read(struct vg_reader *r, struct vg_symbol *symbol);
/* call{.uni} (results), target, (inputs), prototype; from behind the modifiers on. */
void vg_ptx_call_read(struct vg_reader *r, const struct vg_draft *draft);
/* "'wgmma.mma_async' in line 12 is not supported". */
const char *vg_ptx_unsupported_text(struct vg_reader *r, struct vg_token token);

#endif
