"""Causes in the machine: memory, disks, files, ports, the network, limits of the system."""

from __future__ import annotations

from domain.messages import Reason
from worker.diagnosis.causes.cause import AS_RAISED, Cause

SMALLER = (
    "Halve the batch per process and double the accumulation: the global batch stays. "
    "Fewer data-loader workers need less memory, too."
)
KILLED_HINT = "; the kernel does this when memory runs out"
SHARED_MEMORY = (
    "Use fewer data-loader workers, or give the node more shared memory (a container: --shm-size=8g or --ipc=host)."
)
FREE_SPACE = "Free space on node {node}, or write fewer and smaller checkpoints; then resume from the last one."

MEMORY = (
    Cause(
        r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: Killed",
        "Use fewer data-loader workers, let each of them use less memory (num_workers, prefetch_factor), or choose "
        "a node "
        "with more memory.",
        says="a data loader's process (pid {pid}) was killed (SIGKILL)" + KILLED_HINT + "{place}",
        reason=Reason.OUT_OF_MEMORY,
    ),
    Cause(
        r"is killed by signal: Bus error|insufficient shared memory \(shm\)|out of shared memory",
        SHARED_MEMORY,
        says="shared memory (/dev/shm) is full, so a data loader's process died{place}",
        reason=Reason.OUT_OF_MEMORY,
    ),
    Cause(
        r"\(pid (?P<pid>\d+)\) is killed by signal: (?P<signal>Terminated|Interrupt|Hangup)\.",
        "Find out what sent the signal on node {node}: a person, a time limit, or the script's own clean-up. The "
        "training itself was not at fault: resume it from its last checkpoint.",
        says="a data loader's process (pid {pid}) was ended by a signal from outside ({signal}){place}",
        reason=Reason.KILLED,
    ),
    Cause(
        r"\(pid (?P<pid>\d+)\) is killed by signal: (?P<signal>\w[\w ]*)\.",
        "Run the data set alone with num_workers=0: a crash in its native code (image or video decoding) "
        "then shows "
        "its line.",
        says="a data loader's process (pid {pid}) crashed ({signal}){place}",
    ),
    Cause(
        r"^subprocess\.CalledProcessError: Command (?P<command>.{1,200}?) died with <Signals\.SIGKILL",
        "Watch the memory of node {node} while that command runs, or give it less to do at once; then resume.",
        says="a program that the script started was killed (SIGKILL): {command}" + KILLED_HINT + "{place}",
        reason=Reason.KILLED,
    ),
    Cause(
        r"^subprocess\.CalledProcessError: Command (?P<command>.{1,200}?) died with <Signals\.(?P<signal>SIG\w+)",
        "Run that command alone on node {node}: it crashed, or somebody ended it; then resume the run.",
        says="a program that the script started was ended by a signal ({signal}): {command}{place}",
        reason=Reason.KILLED,
    ),
    Cause(
        r"BrokenProcessPool|A process in the process pool was terminated abruptly|TerminatedWorkerError",
        "Use fewer processes in the pool, or let each need less memory: the kernel kills one when memory runs out. "
        "A crash in native code shows its line when the function is called without the pool.",
        says="a process of the script's process pool was killed or crashed: {text}{place}",
        reason=Reason.KILLED,
    ),
    Cause(
        r"failed to map segment from shared object",
        "Raise the memory limit (ulimit -v) on node {node}, or mount its temporary folder without noexec.",
        says="not enough memory to load a library: {text}{place}",
        reason=Reason.OUT_OF_MEMORY,
    ),
    Cause(
        r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly",
        "Set num_workers=0 once: the data set's own error then shows with its line.",
    ),
    Cause(
        r"(?:/torch_\d+_\d+|shared memory|/dev/shm)[\s\S]*No space left|shared memory[\s\S]{0,200}size \d+",
        SHARED_MEMORY,
        says="no space left in shared memory (/dev/shm): {text}{place}",
        reason=Reason.DISK_FULL,
    ),
    Cause(
        r"tried to allocate (?P<bytes>\d+) bytes|Unable to allocate (?P<size>[\d.]+ \w+) for an array",
        SMALLER,
        says="not enough memory, {requested} requested: {text}{place}",
        reason=Reason.OUT_OF_MEMORY,
    ),
    Cause(
        r"^MemoryError|^[\w.]*ArrayMemoryError|an't allocate memory|annot allocate memory|\bbad_alloc",
        SMALLER,
        says="not enough memory: {text}{place}",
        reason=Reason.OUT_OF_MEMORY,
    ),
)
DISK = (
    Cause(
        r"\[Errno 122\]|Disk quota exceeded",
        "Free space of your quota on node {node}, or write to another folder; then resume from the last checkpoint.",
        says="the disk quota is used up: {text}{place}",
        reason=Reason.DISK_FULL,
    ),
    Cause(
        r"\[Errno 28\]|No space left on device",
        FREE_SPACE,
        says="no space left on the disk: {text}{place}",
        reason=Reason.DISK_FULL,
    ),
    Cause(
        r"PytorchStreamWriter failed writing|inline_container\.cc.*unexpected pos|SafetensorError.*No space",
        FREE_SPACE,
        says="a checkpoint could not be written (possibly the disk is full): {text}{place}",
        reason=Reason.DISK_FULL,
    ),
    Cause(
        r"\[Errno 30\]|Read-only file system",
        "Write below the run's working directory ({run_dir} in the arguments), which is writable.",
    ),
    Cause(
        r"\[Errno 24\]|Too many open files",
        "Raise the node's limit (ulimit -n 65536 before its worker is started), or call "
        "torch.multiprocessing.set_sharing_strategy('file_system').",
    ),
    Cause(
        r"can't start new thread|pthread_create failed|\[Errno 11\] Resource temporarily unavailable",
        "Use fewer data-loader workers, or raise the node's limit of processes (ulimit -u; a container: --pids-limit).",
    ),
    Cause(
        r"\[Errno 5\] Input/output error|\[Errno 116\]|Stale file handle|\[Errno 107\]",
        "Check the disk or the network share of node {node}; then resume from the last checkpoint.",
    ),
    Cause(
        r"PermissionError: \[Errno 13\]",
        "Let the account that the worker of node {node} runs as read (or write) it, or choose another path.",
    ),
)
PORTS = (
    Cause(
        r"port: (?P<port>\d+)[\s\S]{0,200}EADDRINUSE",
        "The script chooses this port itself (MASTER_PORT or a tcp:// address in it): let it choose a "
        "free one, or launch it with torchrun and init_process_group() without an address, which gets "
        "its own port.",
        says="port {port} is in use by another program{place}",
        reason=Reason.PORT_IN_USE,
    ),
    Cause(
        r"\[Errno 98\]|[Aa]ddress already in use|EADDRINUSE",
        "Let the script request a free port (port 0), or use a different one for each rank.",
        says="a port it needs is in use by another program: {text}{place}",
        reason=Reason.PORT_IN_USE,
    ),
)
NETWORK = (
    Cause(
        r"huggingface\.co|couldn't connect to 'https://hf|Failed to resolve|Name or service not known"
        r"|Temporary failure in name resolution|nodename nor servname|Max retries exceeded"
        r"|URLError: <urlopen error",
        "Node {node} cannot reach that address: download the data or the model beforehand into a folder "
        "of the node and --link it, or set a proxy with --env.",
    ),
    Cause(
        r"SSLCertVerificationError|CERTIFICATE_VERIFY_FAILED",
        "Node {node} does not trust the server's certificate: set SSL_CERT_FILE with --env to your site's bundle.",
    ),
)

TEXT = (
    Cause(
        r"Unicode(?:En|De)codeError: '(?P<codec>ascii|latin-1|charmap)' codec can't",
        "Launch it with --env PYTHONUTF8=1: node {node} has a locale without UTF-8 (LANG=C), whose encoding "
        'Python takes for files and output. In the script, open(…, encoding="utf-8") does the same for one file.',
    ),
)

__all__ = ["AS_RAISED", "DISK", "KILLED_HINT", "MEMORY", "NETWORK", "PORTS", "SMALLER", "TEXT"]
