"""The stages of a framework for torch, with its user's settings."""


def import_torch():
    begin("framework", "importing torch")
    import torch

    cuda = torch.version.cuda
    facts = {"version": torch.__version__, "cuda": cuda, "file": torch.__file__, "devices": []}
    tell("framework", **facts)
    wait_for_turn()
    if cuda and ASKED["device"] != "cpu":
        begin("framework", "asking torch for its GPUs")
        facts["kernels"] = torch.cuda.get_arch_list()
        facts["cudnn_enabled"] = torch.backends.cudnn.enabled
        torch.cuda.init()
        facts["devices"] = [_torch_device(torch, i) for i in range(torch.cuda.device_count())]
        begin("framework", "asking torch for cuDNN's version")
        facts["cudnn"] = torch.backends.cudnn.version()
        facts["cudnn_built"] = list(torch._C._cudnn.getCompileVersion())
    tell("framework", **facts)
    _share_with_numpy(torch)
    return torch


def _share_with_numpy(torch):
    """Report that torch cannot read arrays of the installed NumPy. Most programs do that, and torch alone works."""
    try:
        import numpy

        torch.from_numpy(numpy.zeros(1))
    except ImportError:
        return  # an environment without NumPy shares nothing
    except (RuntimeError, TypeError) as error:
        tell("numpy", version=numpy.__version__, error=str(error))


def _torch_device(torch, index):
    properties = torch.cuda.get_device_properties(index)
    uuid = getattr(properties, "uuid", None)
    return {
        "index": index,
        "name": properties.name,
        "capability": "%d.%d" % (properties.major, properties.minor),
        "uuid": None if uuid is None else "GPU-%s" % uuid,
    }


def prepare_torch(torch):
    functions = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
    kinds = {
        "float32": torch.float32,
        "tf32": torch.float32,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
    }

    def place(device):
        return "cpu" if device < 0 else "cuda:%d" % device

    def array(flat, shape, dtype):
        exact = torch.tensor(flat, dtype=torch.float64).reshape(shape)
        return exact.to(kinds[dtype]).double()

    def zeros(shape):
        return torch.zeros(tuple(shape), dtype=torch.float64)

    def convolve(device, name, dtype, arrays):
        case = CASES[name]
        rank = len(case["size"])
        first, last, kernel = channels_first(rank)
        dx, dw, dg = (
            a.permute(order).contiguous().to(place(device), kinds[dtype])
            for a, order in zip(arrays, (first, kernel, first))
        )
        torch.backends.cudnn.benchmark = name == "conv2d_autotuned"
        if name == "conv2d_channels_last":
            dx, dw = (a.contiguous(memory_format=torch.channels_last) for a in (dx, dw))
        dx.requires_grad_(), dw.requires_grad_()
        torch.backends.cudnn.allow_tf32 = dtype == "tf32"
        options = dict(stride=case["stride"], padding=case["padding"], groups=case.get("groups", 1))
        if case.get("transposed"):
            function = getattr(torch.nn.functional, "conv_transpose%dd" % rank)
        else:
            function = functions[rank]
        y = function(dx, dw, **options)
        # The gradient that comes back for y is dg, bit for bit. Given it by hand, to `backward` or
        # `torch.autograd.grad`, torch imports SymPy to compare shapes: half of the child's time.
        (y * dg).sum().backward()
        back = tuple(kernel.index(i) for i in range(rank + 2))
        return tuple(
            a.detach().to("cpu", torch.float64).permute(order)
            for a, order in ((y, last), (dx.grad, last), (dw.grad, back))
        )

    def multiply(device, jobs):
        results = []
        for _, dtype, arrays in jobs:
            if hasattr(torch.backends.cuda, "matmul"):  # before 1.7 torch has no TF32
                torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
            x, w, gy, *bias = (a.to(place(device), kinds[dtype]) for a in arrays)
            inputs = [a.requires_grad_() for a in (x, w, *bias)]
            y = torch.addmm(bias[0], x, w) if bias else x @ w
            (y * gy).sum().backward()
            results.append([a.detach().to("cpu", torch.float64) for a in (y, *(i.grad for i in inputs))])
        return results

    def attend(device, jobs, backend):
        if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):  # before 2.0
            return []

        def one(job):
            name, dtype, arrays = job
            return _attend_torch(torch, place(device), name, kinds[dtype], arrays, default=backend is None)

        if backend:
            with _choose_backend(torch, backend):
                return [one(job) for job in jobs]
        # cuDNN compiles for more than a second for each case, so the cases do that at the same time.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(jobs)) as pool:
            return list(pool.map(one, jobs))

    def backends(device):
        """Return the backends that torch can be told to use. Before 2.3 there was another interface for that."""
        try:
            from torch.nn.attention import SDPBackend
        except ImportError:
            return []
        return [n for n in SDPBackend.__members__ if n not in ("ERROR", "OVERRIDEABLE")]

    def list_types():
        cuda = torch.cuda
        return [choose_types(cuda.get_device_capability(i)[0]) for i in range(cuda.device_count())]

    return {
        "convolve": convolve,
        "multiply": multiply,
        "attend": attend,
        "backends": backends,
        "array": array,
        "zeros": zeros,
        "types": list_types,
    }


def _choose_backend(torch, backend):
    """Return a context in which torch may use this backend only."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel([SDPBackend.__members__[backend]])


def _attend_torch(torch, place, name, kind, arrays, default):
    q, k, v, gy = (a.permute(0, 2, 1, 3).contiguous().to(place, kind) for a in arrays)
    for a in (q, k, v):
        a.requires_grad_()
    options = {"is_causal": True}
    if ATTENTIONS[name].get("masked"):
        options = {"attn_mask": torch.tensor(attention_mask(name), device=place)[None, None]}
    if default and place != "cpu" and hasattr(torch, "_fused_sdp_choice"):
        from torch.nn.attention import SDPBackend

        chosen = torch._fused_sdp_choice(q, k, v, **options)
        names = {int(b.value if hasattr(b, "value") else b): n for n, b in SDPBackend.__members__.items()}
        tell("attention_by", case=name, backend=names.get(int(chosen), str(chosen)))
    try:
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    except RuntimeError as error:
        if "No available kernel" in str(error):
            raise Unserved("torch has no kernel of it for this GPU")
        raise
    (y * gy).sum().backward()
    return [a.detach().to("cpu", torch.float64).permute(0, 2, 1, 3) for a in (y, q.grad, k.grad, v.grad)]
