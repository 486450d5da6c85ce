"""libnccl.so.2 as a program sees it that loads it by ctypes: the functions of a rank, and processes that are the ranks."""
import ctypes
import os
import sys
import traceback

LIBRARY = os.environ["LIBRARY"]
SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = range(7)


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def load():
    """The library, with the arguments of the functions whose arguments are not only numbers and pointers."""
    library = ctypes.CDLL(LIBRARY)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.ncclGetErrorString.restype = ctypes.c_char_p
    library.ncclGetLastError.restype = ctypes.c_char_p
    library.ncclGetLastError.argtypes = [pointer]
    library.ncclCommInitRank.argtypes = [pointer, number, UniqueId, number]
    for name in ("Reduce",):
        getattr(library, "nccl" + name).argtypes = [pointer, pointer, size, number, number, number, pointer, pointer]
    for name in ("AllReduce", "ReduceScatter"):
        getattr(library, "nccl" + name).argtypes = [pointer, pointer, size, number, number, pointer, pointer]
    for name in ("Broadcast", "Gather", "Scatter"):
        getattr(library, "nccl" + name).argtypes = [pointer, pointer, size, number, number, pointer, pointer]
    for name in ("AllGather", "AlltoAll"):
        getattr(library, "nccl" + name).argtypes = [pointer, pointer, size, number, pointer, pointer]
    for name in ("Bcast", "Send", "Recv"):
        getattr(library, "nccl" + name).argtypes = [pointer, size, number, number, pointer, pointer]
    library.ncclRedOpCreatePreMulSum.argtypes = [pointer, pointer, number, number, pointer]
    library.ncclRedOpDestroy.argtypes = [number, pointer]
    for name in ("CommDestroy", "CommFinalize", "CommAbort"):
        getattr(library, "nccl" + name).argtypes = [pointer]
    for name in ("CommCount", "CommUserRank", "CommCuDevice", "CommGetAsyncError", "CommSplit"):
        getattr(library, "nccl" + name).argtypes = [pointer, pointer]
    library.ncclCommSplit.argtypes = [pointer, number, number, pointer, pointer]
    return library


class Rank:
    """A rank's library and communicator."""

    def __init__(self, rank, nranks, unique_id, library):
        self.rank, self.nranks, self.library = rank, nranks, library
        self.comm = ctypes.c_void_p()
        self.call("CommInitRank", ctypes.byref(self.comm), nranks, unique_id, rank)

    def call(self, name, *arguments):
        """Calls nccl<name>; an error ends the process with the library's sentence."""
        result = getattr(self.library, "nccl" + name)(*arguments)
        if result != SUCCESS:
            raise RuntimeError(f"rank {self.rank}: nccl{name} returns {result}: {self.last_error()}")

    def last_error(self):
        return self.library.ncclGetLastError(None).decode()


def run(nranks, function):
    """Runs function(rank) in nranks processes, which join by a unique id that the first one makes. Ends this process: 1 where any failed."""
    pipes = [os.pipe() for _ in range(nranks)]
    children = []
    for number in range(nranks):
        child = os.fork()
        if child:
            children.append(child)
            continue
        status = 1
        try:
            library = load()
            unique_id = UniqueId()
            if number == 0:
                if library.ncclGetUniqueId(ctypes.byref(unique_id)) != SUCCESS:
                    raise RuntimeError(library.ncclGetLastError(None).decode())
                for _, end in pipes:
                    os.write(end, bytes(unique_id))
            data = b""
            while len(data) < 128:
                data += os.read(pipes[number][0], 128 - len(data))
            rank = Rank(number, nranks, UniqueId.from_buffer_copy(data), library)
            function(rank)
            rank.call("CommFinalize", rank.comm)
            rank.call("CommDestroy", rank.comm)
            status = 0
        except BaseException:  # the process is this function's own
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    failed = [c for c in children if os.waitpid(c, 0)[1]]
    sys.exit(1 if failed else 0)
