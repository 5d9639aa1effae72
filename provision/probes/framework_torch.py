"""Stages 5, 6 and 7 for torch, with its user's settings."""


def import_torch():
    begin("framework", "importing torch")
    import torch

    cuda = torch.version.cuda
    facts = {"version": torch.__version__, "cuda": cuda, "file": torch.__file__, "devices": []}
    tell("framework", **facts)
    wait_for_turn()
    if getattr(torch.version, "hip", None):
        facts["hip"] = torch.version.hip
    if cuda and ASKED["device"] != "cpu":
        begin("framework", "asking torch for its GPUs")
        facts["kernels"] = torch.cuda.get_arch_list()
        facts["available"] = torch.cuda.is_available()
        facts["cudnn_enabled"] = torch.backends.cudnn.enabled
        torch.cuda.init()
        facts["devices"] = [_torch_device(torch, i) for i in range(torch.cuda.device_count())]
        begin("framework", "asking torch for cuDNN's version")
        facts["cudnn"] = torch.backends.cudnn.version()
        facts["cudnn_built"] = list(torch._C._cudnn.getCompileVersion())
    tell("framework", **facts)
    return torch


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

    def array(flat, shape, dtype):
        exact = torch.tensor(flat, dtype=torch.float64).reshape(shape)
        return exact.to(kinds[dtype]).double()

    def zeros(shape):
        return torch.zeros(tuple(shape), dtype=torch.float64)

    def convolve(device, name, dtype, arrays):
        case = CASES[name]
        rank = len(case["size"])
        first = (0, rank + 1) + tuple(range(1, rank + 1))  # (N, *S, C) to torch's (N, C, *S)
        last = (0,) + tuple(range(2, rank + 2)) + (1,)
        kernel = (rank + 1, rank) + tuple(range(rank))  # (*K, I, O) to torch's (O, I, *K)
        place = "cpu" if device < 0 else "cuda:%d" % device
        dx, dw, dg = (
            a.permute(order).contiguous().to(place, kinds[dtype])
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

    def list_types():
        cuda = torch.cuda
        return [choose_types(cuda.get_device_capability(i)[0]) for i in range(cuda.device_count())]

    return convolve, array, zeros, list_types
