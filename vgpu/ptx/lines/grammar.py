"""Templates of PTX instructions, after chapter 9 of the manual.

A template is `name slots : operands`. A slot is `(a|b)`, of which one word must stand there, or
`[a|b]`, which may be missing; `T=` and `S=` before a slot say that its word is the type that the
operands below depend on. Operands: d, a of type T; D, s of type S; w of twice the width of T; u 32
bits; U 64 bits; p a predicate; q a predicate or its negation; i a constant; v a vector or a register
of T (as the slot .v2, .v4 or .v8 says); m an address; g a global, h a shared address; P a 64-bit
policy; `d|p` a pair; `x?` may be missing."""

INT = "u16|u32|u64|s16|s32|s64"
WORD = "u32|s32|u64|s64"
RND = "rn|rz|rm|rp"
CMP = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan"
MEM = "b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"
SPACE = "global|shared|shared::cta|shared::cluster|local|const|param"
SCOPE = "cta|cluster|gpu|sys"
L1 = "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
L2 = "L2::evict_normal|L2::evict_first|L2::evict_last"
FETCH = "L2::64B|L2::128B|L2::256B"
SHARED = "shared|shared::cta"

TEMPLATES = f"""
add T=({INT}|u16x2|s16x2) : d a a
add [sat] T=(s32) : d a a
add [cc] T=({WORD}) : d a a
add [{RND}] [ftz] [sat] T=(f32|f64|f16|f16x2|bf16|bf16x2) : d a a
add [{RND}] [ftz] T=(f32x2) : d a a
addc [cc] T=({WORD}) : d a a
sub T=({INT}) : d a a
sub [sat] T=(s32) : d a a
sub [cc] T=({WORD}) : d a a
sub [{RND}] [ftz] [sat] T=(f32|f64|f16|f16x2|bf16|bf16x2) : d a a
sub [{RND}] [ftz] T=(f32x2) : d a a
subc [cc] T=({WORD}) : d a a
mul (lo|hi) T=({INT}) : d a a
mul (wide) T=(u16|u32|s16|s32) : w a a
mul [{RND}] [ftz] [sat] T=(f32|f64|f16|f16x2|bf16|bf16x2) : d a a
mul [{RND}] [ftz] T=(f32x2) : d a a
mad (lo|hi) [sat] [cc] T=({INT}) : d a a a
mad (hi) (sat) T=(s32) : d a a a
mad (wide) T=(u16|u32|s16|s32) : w a a w
mad ({RND}) [ftz] [sat] T=(f32|f64) : d a a a
madc (lo|hi) [cc] T=({WORD}) : d a a a
mul24 (lo|hi) T=(u32|s32) : d a a
mad24 (lo|hi) [sat] T=(u32|s32) : d a a a
sad T=({INT}) : d a a a
div T=({INT}) : d a a
div (approx|full|{RND}) [ftz] T=(f32|f64) : d a a
rem T=({INT}) : d a a
abs T=(s16|s32|s64|f64|bf16|bf16x2) : d a
abs [ftz] T=(f32|f16|f16x2) : d a
neg T=(s16|s32|s64|f64|bf16|bf16x2) : d a
neg [ftz] T=(f32|f16|f16x2) : d a
min T=({INT}|u16x2|s16x2) : d a a
min [relu] T=(s32|s16x2) : d a a
min [ftz] [NaN] [xorsign] [abs] T=(f32|f64|f16|f16x2|bf16|bf16x2) : d a a
min [ftz] [NaN] (xorsign) (abs) T=(f32|f16|f16x2|bf16) : d a a
min [ftz] [NaN] T=(f32) : d a a a
max T=({INT}|u16x2|s16x2) : d a a
max [relu] T=(s32|s16x2) : d a a
max [ftz] [NaN] [xorsign] [abs] T=(f32|f64|f16|f16x2|bf16|bf16x2) : d a a
max [ftz] [NaN] (xorsign) (abs) T=(f32|f16|f16x2|bf16) : d a a
popc T=(b32|b64) : u a
clz T=(b32|b64) : u a
bfind [shiftamt] T=({WORD}) : u a
fns T=(b32) : d a u u
brev T=(b32|b64) : d a
bfe T=({WORD}) : d a u u
bfi T=(b32|b64) : d a a u u
szext (clamp|wrap) T=(u32|s32) : d a u
bmsk (clamp|wrap) T=(b32) : d u u
dp4a T=(u32|s32) S=(u32|s32) : d a s u
dp2a (lo|hi) T=(u32|s32) S=(u32|s32) : d a s u
and T=(b16|b32|b64) : d a a
and T=(pred) : d a a
or T=(pred|b16|b32|b64) : d a a
xor T=(pred|b16|b32|b64) : d a a
not T=(pred|b16|b32|b64) : d a
cnot T=(b16|b32|b64) : d a
lop3 T=(b32) : d a a a i
lop3 (or|and) T=(b32) : d|p a a a i q
shf (l|r) (clamp|wrap) T=(b32) : d a a u
shl T=(b16|b32|b64) : d a u
shr T=(b16|b32|b64|{INT}) : d a u
fma ({RND}) [ftz] [sat] T=(f32|f64) : d a a a
fma (rn) [ftz] [sat] [relu] T=(f16|f16x2|bf16|bf16x2) : d a a a
fma (rn) [oob] [relu] T=(f16|f16x2|bf16|bf16x2) : d a a a
fma ({RND}) [ftz] T=(f32x2) : d a a a
rcp (approx|{RND}) [ftz] T=(f32|f64) : d a
sqrt (approx|{RND}) [ftz] T=(f32|f64) : d a
rsqrt (approx) [ftz] T=(f32|f64) : d a
sin (approx) [ftz] T=(f32) : d a
cos (approx) [ftz] T=(f32) : d a
lg2 (approx) [ftz] T=(f32) : d a
ex2 (approx) [ftz] T=(f32|f16|f16x2|bf16|bf16x2) : d a
tanh (approx) T=(f32|f16|f16x2|bf16|bf16x2) : d a
copysign T=(f32|f64) : d a a
testp (finite|infinite|number|notanumber|normal|subnormal) T=(f32|f64) : p a
set ({CMP}) [ftz] T=(u32|s32|f32) S=(b16|b32|b64|{INT}|f32|f64) : d s s
set ({CMP}) (and|or|xor) [ftz] T=(u32|s32|f32) S=({INT}|f32|f64) : d s s q
set ({CMP}) [ftz] T=(f16|bf16|u16|s16|u32|s32|f32) S=(f16|bf16|f16x2) : d s s
set ({CMP}) [ftz] T=(f16x2) S=(f16x2) : d s s
set ({CMP}) T=(bf16x2|u32) S=(bf16x2) : d s s
set (eq|ne|lt|gt|nan|num|equ|geu) (and|or|xor) [ftz] T=(f16x2|f16|bf16x2|u16|s16|u32|s32) S=(f16|f16x2|bf16|bf16x2) : d s s q
setp ({CMP}) [ftz] T=(b16|b32|b64|{INT}|f32|f64) : p a a
setp ({CMP}) [ftz] T=({INT}|f32|f64) : p|p a a
setp (eq|ne|lt|le|gt|ge|lo|hs) (and|or|xor) T=({INT}|f32|f64) : p|p a a q
setp ({CMP}) [and|or|xor] [ftz] T=(f16|bf16|f32) : p a a q
setp (eq|ne|lt|le|gt|ge|equ|ltu|num|nan) [ftz] T=(f16|bf16) : p a a
setp (eq|ne|lt|le|gt|ge|equ|ltu|num|nan) [ftz] T=(f16x2|bf16x2) : p|p a a
selp T=(b16|b32|b64|{INT}|f32|f64) : d a a p
slct [ftz] T=(b16|b32|b64|{INT}|f32|f64) S=(s32|f32) : d a a s
prmt T=(b32) : d a a u
prmt T=(b32) (f4e|b4e|rc8|ecl|ecr|rc16) : d a a u
mov T=(b16|b32|b64|{INT}|f32|f64|pred) : d a
mov T=(b128) : d a
mov T=(b32|b64|u32|u64) : d u
cvt [sat] T=(u8|s8|{INT}) S=(u8|s8|{INT}) : d s
cvt (rni|rzi|rmi|rpi) [ftz] [sat] T=(u8|s8|{INT}) S=(f16|bf16|f32|f64) : d s
cvt ({RND}) [sat] T=(f16|bf16|f32|f64) S=(u8|s8|{INT}) : d s
cvt [{RND}|rni|rzi|rmi|rpi] [ftz] [sat] T=(f16|bf16|f32|f64) S=(f16|bf16|f32|f64) : d s
cvt [{RND}] [ftz] [sat] T=(f16|f32|f64) S=(f16|f32|f64) : d s
cvt (rn|rz) [relu] [satfinite] T=(f16|bf16) S=(f32) : d s
cvt (rn|rz|rs) [relu] [satfinite] T=(f16x2|bf16x2) S=(f32) : d s s
cvt (rna|rn|rz) [satfinite] [relu] T=(tf32) S=(f32) : d s
cvt (rn) (satfinite) [relu] T=(e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2) S=(f32) : d s s
cvt (rn) (satfinite) [relu] T=(e4m3x2|e5m2x2) S=(f16x2|bf16x2) : d s
cvt (rn) [relu] T=(f16x2) S=(e4m3x2|e5m2x2|e2m1x2) : d s
cvt (rz|rp|rn) [satfinite] T=(ue8m0x2) S=(f32|bf16x2) : d s s
cvt (pack) (sat) T=(u16|s16) S=(s32) : u s s
cvt (pack) (sat) T=(u8|s8|u4|s4|u2|s2) S=(s32) (b32) : u s s u
cvta [{SPACE}] T=(u32|u64) : d a
cvta (to) ({SPACE}) T=(u32|u64) : d a
cvta (global|shared|local|const|shared::cta|shared::cluster|param|param::entry) T=(u64) : d a
cvta (to) (global|shared|local|const) T=(u64) : d a
isspacep (global|shared|shared::cta|shared::cluster|local|const|param|param::entry) : p U
ld [weak] [{SPACE}] [{L1}] [{L2}] [{FETCH}] [v2|v4] T=({MEM}) : v m
ld [{SPACE}] [v2|v4] T=({MEM}) : v m
ld [weak] [{SPACE}] [ca|cg|cs|lu|cv] [v2|v4] T=({MEM}) : v m
ld (global) [{L1}] (L2::cache_hint) [{FETCH}] [v2|v4] T=({MEM}) : v m P
ld (volatile) [{SPACE}] [v2|v4] T=({MEM}) : v m
ld (relaxed|acquire) ({SCOPE}) [global|{SHARED}] [{L1}] [{FETCH}] [v2|v4] T=({MEM}) : v m
ld (relaxed|acquire) ({SCOPE}) [global|{SHARED}] T=({MEM}) : v m
ld (mmio) (relaxed) (sys) [global] T=({MEM}) : v m
ld (global) [ca|cg|cs] (nc) [v2|v4] T=({MEM}) : v m
ld (global) (nc) [{L1}] [{L2}] [{FETCH}] [v2|v4] T=({MEM}) : v m
ld [global] [{L1}] [{L2}] (v8) T=(b32|u32|s32|f32) : v m
ld (global) [{L2}] (v4|v8) T=(b64|u64|s64|f64|b32|f32) : v m
ld (global) (nc) (v8) T=(b32|f32) : v m
ldu [global] [v2|v4] T=({MEM}) : v m
st [weak] [global|{SHARED}|shared::cluster|local|param] [{L1}] [{L2}] [v2|v4] T=({MEM}) : m v
st [global|{SHARED}|local] [v2|v4] T=({MEM}) : m v
st [weak] [global|{SHARED}|local] [wb|cg|cs|wt] [v2|v4] T=({MEM}) : m v
st (global) [{L1}] (L2::cache_hint) [v2|v4] T=({MEM}) : m v P
st (volatile) [{SPACE}] [v2|v4] T=({MEM}) : m v
st (relaxed|release) ({SCOPE}) [global|{SHARED}] [{L1}] [v2|v4] T=({MEM}) : m v
st (relaxed|release) ({SCOPE}) [global|{SHARED}] T=({MEM}) : m v
st (mmio) (relaxed) (sys) [global] T=({MEM}) : m v
st [global] [{L1}] [{L2}] (v8) T=(b32|u32|s32|f32) : m v
st (global) [{L2}] (v4|v8) T=(b64|u64|s64|f64|b32|f32) : m v
atom [relaxed|acquire|release|acq_rel] [{SCOPE}] [global|{SHARED}|shared::cluster] (and|or|xor) T=(b32|b64) : d m a
atom [relaxed|acquire|release|acq_rel] [{SCOPE}] [global|{SHARED}] (exch) T=(b32|b64|b128) : d m a
atom [relaxed|acquire|release|acq_rel] [{SCOPE}] [global|{SHARED}] (cas) T=(b16|b32|b64|b128) : d m a a
atom [relaxed|acquire|release|acq_rel] [{SCOPE}] [global|{SHARED}] (add) T=(u32|s32|u64|s64|f32|f64) : d m a
atom [relaxed|acquire|release|acq_rel] [{SCOPE}] [global|{SHARED}] (add) [noftz] T=(f16|f16x2|bf16|bf16x2) : d m a
atom [relaxed|acquire|release|acq_rel] [{SCOPE}] [global|{SHARED}] (add) (noftz) T=(f16|f16x2|bf16|bf16x2) : d m a
atom [{SCOPE}] [global|{SHARED}] (inc|dec) T=(u32|s32) : d m a
atom [acquire|release|acq_rel] [{SCOPE}] [global|{SHARED}] (min|max) T=(u32|s32|u64|s64) : d m a
atom [global] (add) (L2::cache_hint) T=(u32|s32|u64|f32|f64) : d m a P
atom [relaxed|release] [gpu|sys] (global) (add) (v2|v4|v8) T=(f32) : v m v
atom [relaxed|release] [gpu|sys] (global) (add|min|max) (noftz) (v2|v4|v8) T=(f16|f16x2|bf16|bf16x2) : v m v
atom (global) (v2|v4|v8) [f32] (add|min|max) [noftz] T=(f16|f16x2|bf16|bf16x2|f32) : v m v
red [relaxed|release] [{SCOPE}] [global|{SHARED}|shared::cluster] (and|or|xor) T=(b32|b64) : m a
red [relaxed|release] [{SCOPE}] [global|{SHARED}] (add) T=(u32|s32|u64|s64|f32|f64) : m a
red [relaxed|release] [{SCOPE}] [global|{SHARED}] (add) (noftz) T=(f16|f16x2|bf16|bf16x2) : m a
red [{SCOPE}] [global|{SHARED}] (inc|dec) T=(u32) : m a
red [{SCOPE}] [global|{SHARED}] (min|max) T=(u32|s32|u64|s64) : m a
red [global] (add) (L2::cache_hint) T=(u32|s32|u64|f32|f64) : m a P
red [relaxed|release] [gpu|sys] (global) (add) (v2|v4|v8) T=(f32) : m v
red (global) (add|min|max) (noftz) (v2|v4|v8) T=(f16|f16x2|bf16|bf16x2) : m v
red (global) (v2|v4|v8) T=(f32) (add) : m v
prefetch [global|local] (L1|L2) : m
prefetch (global) (L2::evict_last|L2::evict_normal) : m
prefetch [const|param] (tensormap) : m
prefetchu (L1) : m
applypriority [global] (L2::evict_normal) : m i
discard [global] (L2) : m i
createpolicy (fractional) ({L2}|L2::evict_unchanged) [L2::evict_first|L2::evict_unchanged] T=(b64) : U f
createpolicy (fractional) ({L2}) T=(b64) : U
createpolicy (range) [global] ({L2}) [L2::evict_first] T=(b64) : U m u u
createpolicy (cvt) (L2) T=(b64) : U U
cp (async) (ca|cg) ({SHARED}) (global) [L2::cache_hint] [{FETCH}] : h g i
cp (async) (ca|cg) ({SHARED}) (global) [{FETCH}] : h g i
cp (async) (ca|cg) ({SHARED}) (global) : h g i u
cp (async) (ca|cg) ({SHARED}) (global) : h g i p
cp (async) (commit_group) :
cp (async) (wait_group) : i
cp (async) (wait_all) :
cp (async) (mbarrier) (arrive) [noinc] [{SHARED}] (b64) : h
mbarrier (init) [{SHARED}] (b64) : h u
mbarrier (inval) [{SHARED}] (b64) : h
mbarrier (expect_tx) [relaxed] [cta|cluster] [{SHARED}|shared::cluster] (b64) : h u
mbarrier (complete_tx) [relaxed] [cta|cluster] [{SHARED}|shared::cluster] (b64) : h u
mbarrier (arrive) [release|relaxed] [cta|cluster] [{SHARED}] (b64) : U h u?
mbarrier (arrive) (expect_tx) [release|relaxed] [cta|cluster] [{SHARED}] (b64) : U h u
mbarrier (arrive) (release) (cluster) (shared::cluster) (b64) : _ h u?
mbarrier (arrive) (noComplete) [release] [cta] [{SHARED}] (b64) : U h u
mbarrier (arrive_drop) [release|relaxed] [cta|cluster] [{SHARED}] (b64) : U h u?
mbarrier (arrive_drop) (expect_tx) [release|relaxed] [cta|cluster] [{SHARED}] (b64) : U h u
mbarrier (arrive_drop) (noComplete) [release] [cta] [{SHARED}] (b64) : U h u
mbarrier (test_wait) [acquire|relaxed] [cta|cluster] [{SHARED}] (b64) : p h U
mbarrier (test_wait) (parity) [acquire|relaxed] [cta|cluster] [{SHARED}] (b64) : p h u
mbarrier (try_wait) [acquire|relaxed] [cta|cluster] [{SHARED}] (b64) : p h U u?
mbarrier (try_wait) (parity) [acquire|relaxed] [cta|cluster] [{SHARED}] (b64) : p h u u?
mbarrier (pending_count) (b64) : u U
bar (warp) (sync) : u
bar [cta] (sync) : u u?
bar [cta] (arrive) : u u
bar [cta] (red) (popc) (u32) : u u u? q
bar [cta] (red) (and|or) (pred) : p u u? q
barrier [cta] (sync) [aligned] : u u?
barrier [cta] (arrive) [aligned] : u u
barrier [cta] (red) (popc) [aligned] (u32) : u u u? q
barrier [cta] (red) (and|or) [aligned] (pred) : p u u? q
barrier (cluster) (arrive) [release|relaxed] [aligned] :
barrier (cluster) (wait) [acquire] [aligned] :
membar (cta|gl|sys) :
membar (proxy) (alias|async) :
fence [sc|acq_rel|acquire|release] ({SCOPE}) :
fence (proxy) (alias|async|async.global|async.shared::cta) :
fence (mbarrier_init) (release) (cluster) :
fence (acquire|release) (sync_restrict::shared::cluster|sync_restrict::shared::cta) (cluster) :
fence (proxy) (tensormap::generic) (release|acquire) ({SCOPE}) :
vote (sync) (all|any|uni) (pred) : p q u
vote (sync) (ballot) (b32) : u q u
match (any) (sync) T=(b32|b64) : u a u
match (all) (sync) T=(b32|b64) : u|p a u
activemask (b32) : u
redux (sync) (add|min|max) T=(u32|s32) : d a u
redux (sync) (and|or|xor) T=(b32) : d a u
redux (sync) (min|max) [abs] [NaN] T=(f32) : d a u
shfl (sync) (up|down|bfly|idx) T=(b32) : d|p a u u u
shfl (sync) (up|down|bfly|idx) T=(b32) : d a u u u
elect (sync) : u|p u
alloca T=(u64|u32|b64|b32) : d a i?
stacksave T=(u64|u32|b64|b32) : d
stackrestore T=(u64|u32|b64|b32) : a
ret [uni] :
exit :
trap :
brkpt :
pmevent [mask] : i
nanosleep (u32) : u
griddepcontrol (launch_dependents|wait) :
setmaxnreg (inc|dec) (sync) (aligned) (u32) : i
mapa [shared::cluster] T=(u32|u64) : d a u
getctarank [shared::cluster] T=(u32|u64) : u a
movmatrix (sync) (aligned) (m8n8) (trans) (b16) : u u
istypep (texref|samplerref|surfref) : p U
vadd T=(u32|s32) S=(u32|s32) (u32|s32) [sat] : d a s
bra [uni] : L
st (async) [weak] [shared::cluster] (mbarrier::complete_tx::bytes) T=(b32|b64|u32|s64) : h a h
"""
