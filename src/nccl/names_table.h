/* The names that libnccl.so.2 exports: nccl<Name>, weak, and pnccl<Name>, strong. A row stands
 * under the file that defines pnccl<Name>; a file defines its macro and includes this table, which
 * leaves all other rows out.
 *
 * TT_LATER(Name, what, parameters): a function that does not exist yet: it returns
 * ncclInvalidUsage, and ncclGetLastError says that `what` is not there. TT_LATER_CALL: one that
 * a group would hold, so an open group fails with it. TT_LATER_MAKER: one of these with a place
 * `made` for the handle of a communicator, which is NULL then. */
/* clang-format off */
#ifndef TT_IN_ERRORS
#define TT_IN_ERRORS(name)
#endif
#ifndef TT_IN_COMMUNICATORS
#define TT_IN_COMMUNICATORS(name)
#endif
#ifndef TT_IN_GROUPS
#define TT_IN_GROUPS(name)
#endif
#ifndef TT_IN_MEMORY
#define TT_IN_MEMORY(name)
#endif
#ifndef TT_IN_COLLECTIVES
#define TT_IN_COLLECTIVES(name)
#endif
#ifndef TT_IN_TEAMS
#define TT_IN_TEAMS(name)
#endif
#ifndef TT_IN_PARAMETERS
#define TT_IN_PARAMETERS(name)
#endif
#ifndef TT_LATER
#define TT_LATER(name, what, parameters)
#endif
#ifndef TT_LATER_CALL
#define TT_LATER_CALL(name, what, parameters)
#endif
#ifndef TT_LATER_MAKER
#define TT_LATER_MAKER(name, what, parameters)
#endif

TT_IN_ERRORS(GetVersion)
TT_IN_ERRORS(GetErrorString)
TT_IN_ERRORS(GetLastError)
TT_IN_ERRORS(ResetDebugInit) /* ncclResetDebugInitInternal is strong and has no twin: errors.c */

TT_IN_COMMUNICATORS(GetUniqueId)
TT_IN_COMMUNICATORS(CommInitRank)
TT_IN_COMMUNICATORS(CommInitRankConfig)
TT_IN_COMMUNICATORS(CommInitRankScalable)
TT_IN_COMMUNICATORS(CommInitAll)
TT_IN_COMMUNICATORS(CommSplit)
TT_IN_COMMUNICATORS(CommFinalize)
TT_IN_COMMUNICATORS(CommGetAsyncError)
TT_IN_COMMUNICATORS(CommCount)
TT_IN_COMMUNICATORS(CommCuDevice)
TT_IN_COMMUNICATORS(CommUserRank)

TT_IN_GROUPS(GroupStart)
TT_IN_GROUPS(GroupEnd)
TT_IN_GROUPS(GroupSimulateEnd) /* comes later, but ends the group */
TT_IN_GROUPS(CommDestroy)
TT_IN_GROUPS(CommAbort)

TT_IN_MEMORY(MemAlloc)
TT_IN_MEMORY(MemFree)
TT_IN_MEMORY(CommRegister)
TT_IN_MEMORY(CommDeregister)
TT_IN_MEMORY(CommWindowRegister)
TT_IN_MEMORY(CommWindowDeregister)
TT_IN_MEMORY(RedOpCreatePreMulSum)
TT_IN_MEMORY(RedOpDestroy)

TT_IN_COLLECTIVES(Reduce)
TT_IN_COLLECTIVES(Bcast)
TT_IN_COLLECTIVES(Broadcast)
TT_IN_COLLECTIVES(AllReduce)
TT_IN_COLLECTIVES(ReduceScatter)
TT_IN_COLLECTIVES(AllGather)
TT_IN_COLLECTIVES(AlltoAll)
TT_IN_COLLECTIVES(Gather)
TT_IN_COLLECTIVES(Scatter)
TT_IN_COLLECTIVES(ReduceConfig)
TT_IN_COLLECTIVES(BroadcastConfig)
TT_IN_COLLECTIVES(AllReduceConfig)
TT_IN_COLLECTIVES(ReduceScatterConfig)
TT_IN_COLLECTIVES(AllGatherConfig)
TT_IN_COLLECTIVES(AlltoAllConfig)
TT_IN_COLLECTIVES(GatherConfig)
TT_IN_COLLECTIVES(ScatterConfig)
TT_IN_COLLECTIVES(Send)
TT_IN_COLLECTIVES(Recv)

TT_IN_TEAMS(CommQueryProperties)
TT_IN_TEAMS(TeamWorld)
TT_IN_TEAMS(TeamLsa)
TT_IN_TEAMS(TeamRail)
TT_IN_TEAMS(TeamCft)
TT_IN_TEAMS(TeamCftMultimem)
TT_IN_TEAMS(TeamRankToWorld)
TT_IN_TEAMS(TeamRankToLsa)
TT_IN_TEAMS(LLA2ACalcSlots)

TT_IN_PARAMETERS(ParamBind)
TT_IN_PARAMETERS(ParamGetI8)
TT_IN_PARAMETERS(ParamGetI16)
TT_IN_PARAMETERS(ParamGetI32)
TT_IN_PARAMETERS(ParamGetI64)
TT_IN_PARAMETERS(ParamGetU8)
TT_IN_PARAMETERS(ParamGetU16)
TT_IN_PARAMETERS(ParamGetU32)
TT_IN_PARAMETERS(ParamGetU64)
TT_IN_PARAMETERS(ParamGetStr)
TT_IN_PARAMETERS(ParamGet)
TT_IN_PARAMETERS(ParamGetParameter)
TT_IN_PARAMETERS(ParamGetAllParameterKeys)
TT_IN_PARAMETERS(ParamDumpAll)

TT_LATER_MAKER(CommShrink, "shrinking a communicator", (ncclComm_t comm, int *ranks, int nranks, ncclComm_t *made, ncclConfig_t *config, int flags))
TT_LATER(CommGetUniqueId, "growing a communicator", (ncclComm_t comm, ncclUniqueId *id))
TT_LATER_MAKER(CommGrow, "growing a communicator", (ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank, ncclComm_t *made, ncclConfig_t *config))
TT_LATER_CALL(CommRevoke, "revoking a communicator", (ncclComm_t comm, int flags))
TT_LATER(CommSuspend, "suspending a communicator", (ncclComm_t comm, int flags))
TT_LATER(CommResume, "resuming a communicator", (ncclComm_t comm))
TT_LATER(CommMemStats, "counting the memory of a communicator", (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value))
TT_LATER(WinGetUserPtr, "registering a window", (ncclComm_t comm, ncclWindow_t window, void **memory))
TT_LATER_CALL(PutSignal, "one-sided communication", (const void *memory, size_t count, ncclDataType_t type, int peer, ncclWindow_t window, size_t offset, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
TT_LATER_CALL(Signal, "one-sided communication", (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream))
TT_LATER_CALL(WaitSignal, "one-sided communication", (int nsignals, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream))
TT_LATER(SetEncryption, "setting the encryption by a call (use TUTTI_ENCRYPT and TUTTI_JOB_KEY)", (const ncclEncryptionConfig_t *config))
TT_LATER(DevCommCreate, "the device API", (ncclComm_t comm, const struct ncclDevCommRequirements *requirements, struct ncclDevComm *made))
TT_LATER(DevCommDestroy, "the device API", (ncclComm_t comm, const struct ncclDevComm *made))
TT_LATER(GetLsaDevicePointer, "the device API", (ncclWindow_t window, size_t offset, int rank, void **pointer))
TT_LATER(GetLsaMultimemDevicePointer, "the device API", (ncclWindow_t window, size_t offset, void **pointer))
TT_LATER(GetMultimemDevicePointer, "the device API", (ncclWindow_t window, size_t offset, struct ncclMultimemHandle multimem, void **pointer))
TT_LATER(GetPeerDevicePointer, "the device API", (ncclWindow_t window, size_t offset, int peer, void **pointer))
TT_LATER(GetCftDeviceLeInfo, "the device API", (ncclWindow_t window, size_t offset, int peer, struct ncclTeam team, uint32_t *id, size_t *at))
TT_LATER(GetMultimemDeviceLeInfo, "the device API", (ncclWindow_t window, size_t offset, uint32_t *id, size_t *at))
TT_LATER(GetPeerDeviceLeInfo, "the device API", (ncclWindow_t window, size_t offset, int peer, uint32_t *id, size_t *at))
TT_LATER(LLA2ACreateRequirement, "the device API", (int nblocks, int nslots, struct ncclLLA2AHandle *handle, struct ncclDevResourceRequirements *requirements))
TT_LATER(LsaBarrierCreateRequirement, "the device API", (struct ncclTeam team, int nbarriers, struct ncclLsaBarrierHandle *handle, struct ncclDevResourceRequirements *requirements))
TT_LATER(GinBarrierCreateRequirement, "the device API", (ncclComm_t comm, struct ncclTeam team, int nbarriers, struct ncclGinBarrierHandle *handle, struct ncclDevResourceRequirements *requirements))
TT_LATER(GinOutboxCreateRequirement, "the device API", (int nblocks, int log2_bytes, struct ncclGinOutboxHandle *handle, struct ncclDevResourceRequirements *requirements))
TT_LATER(GinInboxA2ACreateRequirement, "the device API", (struct ncclTeam peers, int nblocks, int log2_bytes, struct ncclGinInboxA2AHandle *handle, struct ncclDevResourceRequirements *requirements))
/* clang-format on */

#undef TT_IN_ERRORS
#undef TT_IN_COMMUNICATORS
#undef TT_IN_GROUPS
#undef TT_IN_MEMORY
#undef TT_IN_COLLECTIVES
#undef TT_IN_TEAMS
#undef TT_IN_PARAMETERS
#undef TT_LATER
#undef TT_LATER_CALL
#undef TT_LATER_MAKER
