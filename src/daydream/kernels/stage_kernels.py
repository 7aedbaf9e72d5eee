"""GPU kernels of a residual stage: 3x3 convolutions that take batch norm, ReLU and sums of statistics along.

A small network spends its step on hundreds of short kernels, and on convolutions made for far more than 16 channels.
Here a convolution adds up, as it writes its output, the sums that batch norm needs, forward and backward, and in
evaluation mode it also applies batch norm, shortcut and ReLU. `fused.py` puts them together.

Maps lie in memory as pixels x channels (channels last), weights as out x 3 x 3 x in. Shapes: P pixels of a
batch of maps, K channels read, N channels written. Channels are padded to powers of two inside a kernel (KP, NP).

EARLY: the kernel was launched while the one before it may still run, and waits for it before it touches memory.
"""

import triton
import triton.language as tl

EPSILON = tl.constexpr(1e-5)  # of torch's batch norm
MOMENTUM = tl.constexpr(0.1)
SLOTS = tl.constexpr(4)  # of sums: programs that end together add to different ones
FORWARD = tl.constexpr(2.0**24)  # sums of maps count in units of one over it,
BACKWARD = tl.constexpr(2.0**40)  # those of gradients of one over this
MOST = tl.constexpr(2.0**54)  # units that a program may add: hundreds of programs to a slot cannot overflow it


@triton.jit
def add(sums_ptr, n, one, two, N: tl.constexpr, UNITS: tl.constexpr):
    """Add a program's two sums of channels n: whole numbers, whose sum no order changes.

    Sums are [2 SLOTS + 1, N], two rows a slot. The last row tells that a sum was not finite, or too large to hold.
    """
    one = tl.floor(one * UNITS + 0.5)
    two = tl.floor(two * UNITS + 0.5)
    held = (tl.abs(one) < MOST) & (tl.abs(two) < MOST)
    at = sums_ptr + tl.program_id(0) % SLOTS * (2 * N) + n
    tl.atomic_add(at, one.to(tl.int64), mask=held, sem="relaxed")
    tl.atomic_add(at + N, two.to(tl.int64), mask=held, sem="relaxed")
    tl.store(sums_ptr + SLOTS * (2 * N) + n, 1, mask=held == 0)


@triton.jit
def added(sums_ptr, n, N: tl.constexpr, UNITS: tl.constexpr):
    """Return the two sums of channels n that all programs of a kernel have added, or NaN where they are not held."""
    one = tl.load(sums_ptr + n)
    two = tl.load(sums_ptr + N + n)
    for slot in tl.static_range(1, SLOTS):
        one += tl.load(sums_ptr + slot * 2 * N + n)
        two += tl.load(sums_ptr + slot * 2 * N + N + n)
    held = tl.load(sums_ptr + SLOTS * (2 * N) + n) == 0
    one = tl.where(held, one.to(tl.float32) / UNITS, float("nan"))
    two = tl.where(held, two.to(tl.float32) / UNITS, float("nan"))
    return one, two


@triton.jit
def convolve(
    x_ptr,  # maps read [P_in, K]
    w_ptr,
    y_ptr,  # maps written [P, N]
    side_ptr,  # SIDE: maps of a shortcut, added to what is written
    mean_ptr,  # NORM: running mean, running variance, weight and bias [N] of the batch norm to apply
    var_ptr,
    weight_ptr,
    bias_ptr,
    mask_ptr,  # MASK or SUMS 2: the maps [P, N] that a gradient belongs to
    gate_ptr,  # MASK: scale and shift [2, N] whose ReLU lets a gradient through
    sums_ptr,  # SUMS: see `add`
    P,
    COUNTED,  # SUMS 1: the pixels that enter, the first ones
    IH: tl.constexpr,
    IW: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    N: tl.constexpr,
    NP: tl.constexpr,
    SK: tl.constexpr,  # distances in the weights: of channels read,
    SN: tl.constexpr,  # of channels written,
    ST: tl.constexpr,  # of taps
    STRIDE: tl.constexpr,
    BACK: tl.constexpr,  # the gradient for the input: taps and stride work the other way round
    NORM: tl.constexpr,
    SIDE: tl.constexpr,  # 0: none; 1: same pixel; 2: every second pixel, fewer channels; 3: the gradient of 2
    SC: tl.constexpr,  # channels, height and width of the shortcut's maps
    SH: tl.constexpr,
    SW: tl.constexpr,
    RELU: tl.constexpr,
    MASK: tl.constexpr,
    SUMS: tl.constexpr,  # 0: none; 1: y and y^2; 2: y and y a
    BM: tl.constexpr,
    BN: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write a 3x3 convolution with padding 1, or its gradient for the input: BM pixels and BN channels a program."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, KP)
    inside = rows < P
    image = rows // (OH * OW)
    oy = rows // OW % OH
    ox = rows % OW
    # Where tap 0 reads, and which taps read inside the map: a bit each, three by three.
    if BACK:
        top = (oy + 1) // STRIDE
        left = (ox + 1) // STRIDE
        odd_y = (STRIDE == 1) | (oy % 2 == 1)
        odd_x = (STRIDE == 1) | (ox % 2 == 1)
        down = tl.where(odd_y & (top < IH), 0o007, 0) | tl.where(odd_y & (oy > 0), 0o700, 0)
        across = tl.where(odd_x & (left < IW), 0o111, 0) | tl.where(odd_x & (ox > 0), 0o444, 0)
        down |= tl.where(oy % STRIDE == 0, 0o070, 0)
        across |= tl.where(ox % STRIDE == 0, 0o222, 0)
    else:
        top = oy * STRIDE - 1
        left = ox * STRIDE - 1
        down = tl.where(top >= 0, 0o077, 0o070) | tl.where(top + 2 < IH, 0o700, 0)
        across = tl.where(left >= 0, 0o333, 0o222) | tl.where(left + 2 < IW, 0o444, 0)
    found = tl.where(inside, down & across, 0)
    x_ptrs = x_ptr + ((image * IH + top) * IW + left)[:, None] * K + k[None, :]
    w_ptrs = w_ptr + k[:, None] * SK + n[None, :] * SN
    dtype = y_ptr.dtype.element_ty
    acc = tl.zeros([BM, BN], dtype=tl.float32)
    for tap in range(9):
        seen = ((found >> tap) & 1)[:, None] != 0
        if K < KP:
            seen = seen & (k < K)[None, :]
        if BACK:
            v = tl.load(x_ptrs - (tap // 3 // STRIDE * IW + tap % 3 // STRIDE) * K, mask=seen, other=0.0)
        else:
            v = tl.load(x_ptrs + (tap // 3 * IW + tap % 3) * K, mask=seen, other=0.0)
        if K < KP or N < NP:
            w = tl.load(w_ptrs + tap * ST, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        else:
            w = tl.load(w_ptrs + tap * ST)
        acc = tl.dot(v.to(dtype), w.to(dtype), acc, input_precision="ieee")
    keep = inside[:, None] & (n < N)[None, :]
    at = rows[:, None] * N + n[None, :]
    if NORM:
        s = tl.load(weight_ptr + n) * tl.rsqrt(tl.load(var_ptr + n) + EPSILON)
        acc = acc * s[None, :] + (tl.load(bias_ptr + n) - tl.load(mean_ptr + n) * s)[None, :]
    if SIDE == 1:
        acc += tl.load(side_ptr + at, mask=keep, other=0.0).to(tl.float32)
    if SIDE == 2:
        near = ((image * SH + 2 * oy) * SW + 2 * ox)[:, None] * SC + n[None, :]
        acc += tl.load(side_ptr + near, mask=keep & (n < SC)[None, :], other=0.0).to(tl.float32)
    if SIDE == 3:
        even = (oy % 2 == 0) & (ox % 2 == 0)
        near = ((image * SH + oy // 2) * SW + ox // 2)[:, None] * SC + n[None, :]
        acc += tl.load(side_ptr + near, mask=keep & even[:, None], other=0.0).to(tl.float32)
    if RELU:
        acc = tl.maximum(acc, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if MASK or SUMS == 2:
        owner = tl.load(mask_ptr + at, mask=keep, other=0.0).to(tl.float32)
    if MASK:
        gate = owner * tl.load(gate_ptr + n)[None, :] + tl.load(gate_ptr + N + n)[None, :]
        acc = tl.where(gate > 0, acc, 0.0)
    tl.store(y_ptr + at, acc.to(dtype), mask=keep)
    if SUMS == 1:
        acc = tl.where((rows < COUNTED)[:, None], acc, 0.0)
        add(sums_ptr, n, tl.sum(acc, axis=0), tl.sum(acc * acc, axis=0), N, FORWARD)
    if SUMS == 2:
        add(sums_ptr, n, tl.sum(acc, axis=0), tl.sum(acc * owner, axis=0), N, BACKWARD)


@triton.jit
def weigh(
    x_ptr,  # maps the convolution read [P_in, K]
    g_ptr,  # gradient of what it wrote [P, N]
    out_ptr,  # [chunks, all weights]: the sum of a chunk of pixels
    P,
    WIDTH,  # weights in a row of `out`
    CHUNK: tl.constexpr,  # pixels of a chunk, a multiple of BM
    IH: tl.constexpr,
    IW: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    OH: tl.constexpr,
    OW: tl.constexpr,
    N: tl.constexpr,
    STRIDE: tl.constexpr,
    TAPS: tl.constexpr,
    BM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write the gradient for a convolution's weights: a chunk of pixels and TAPS of the nine taps a program."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    chunk = tl.program_id(0)
    col = tl.arange(0, TAPS * KP)
    tap = tl.program_id(1) * TAPS + col // KP
    k = col % KP
    wanted = (tap < 9) & (k < K)
    dy = tl.where(wanted, tap // 3 - 1, 2 * IH)  # what is not wanted lies outside every map
    dx = tap % 3 - 1
    off = (dy * IW + dx) * K + k
    n = tl.arange(0, N)
    pixel = chunk * CHUNK + tl.arange(0, BM)
    x_ptrs = x_ptr + pixel[:, None] * K + off[None, :]
    g_ptrs = g_ptr + pixel[:, None] * N + n[None, :]
    dtype = g_ptr.dtype.element_ty
    acc = tl.zeros([TAPS * KP, N], dtype=tl.float32)
    for start in range(0, CHUNK, BM):
        rows = pixel + start
        inside = (rows < P)[:, None]
        iy = rows // OW % OH * STRIDE
        ix = rows % OW * STRIDE
        # As unsigned numbers, those before the map's first lie far beyond its last.
        y = (iy[:, None] + dy[None, :]).to(tl.uint32)
        x = (ix[:, None] + dx[None, :]).to(tl.uint32)
        seen = inside & (y < IH) & (x < IW)
        if STRIDE == 1:
            v = tl.load(x_ptrs + start * K, mask=seen, other=0.0)
        else:
            at = ((rows // (OH * OW) * IH + iy) * IW + ix) * K
            v = tl.load(x_ptr + at[:, None] + off[None, :], mask=seen, other=0.0)
        g = tl.load(g_ptrs + start * N, mask=inside, other=0.0)
        acc = tl.dot(tl.trans(v.to(dtype)), g, acc, input_precision="ieee")
    place = n[None, :] * (9 * K) + (tap * K + k)[:, None]
    # Of a chunk beyond the last pixel the sum is zero, and is written too.
    tl.store(out_ptr + chunk.to(tl.int64) * WIDTH + place, acc, mask=wanted[:, None])


@triton.jit
def weigh_all(
    x_ptr,  # maps the convolution read [P, K]
    g_ptr,  # gradient of what it wrote [P, N]
    out_ptr,  # [chunks, all weights]: the sum of a chunk of pixels
    P,
    WIDTH,  # weights in a row of `out`
    CHUNK: tl.constexpr,  # pixels of a chunk, a multiple of BM
    H: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    N: tl.constexpr,
    BM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write the gradient for the weights of a convolution with stride 1: all taps of a chunk by one product.

    A tap is a shift of the maps along a row and one of the gradient by a row: columns (dx, k) times columns (dy, n).
    A fourth shift either way makes the columns a power of two, reads nothing and is not written.
    """
    if EARLY:
        tl.extra.cuda.gdc_wait()
    chunk = tl.program_id(0)
    left = tl.arange(0, 4 * K)
    dx = left // K
    k = left % K
    right = tl.arange(0, 4 * N)
    dy = right // N
    n = right % N
    pixel = chunk * CHUNK + tl.arange(0, BM)
    x_ptrs = x_ptr + pixel[:, None] * K + ((dx - 1) * K + k)[None, :]
    g_ptrs = g_ptr + pixel[:, None] * N + ((1 - dy) * (W * N) + n)[None, :]
    across = tl.where(dx < 3, dx - 1, 2 * W)  # the fourth lies outside every map
    down = tl.where(dy < 3, 1 - dy, 2 * H)
    dtype = g_ptr.dtype.element_ty
    acc = tl.zeros([4 * K, 4 * N], dtype=tl.float32)
    for start in range(0, CHUNK, BM):
        at = pixel + start
        inside = (at < P)[:, None]
        # As unsigned numbers, those before the map's first lie far beyond its last.
        x = ((at % W)[:, None] + across[None, :]).to(tl.uint32)
        y = ((at // W % H)[:, None] + down[None, :]).to(tl.uint32)
        v = tl.load(x_ptrs + start * K, mask=inside & (x < W), other=0.0)
        g = tl.load(g_ptrs + start * N, mask=inside & (y < H), other=0.0)
        acc = tl.dot(tl.trans(v.to(dtype)), g, acc, input_precision="ieee")
    place = n[None, :] * (9 * K) + (3 * dy[None, :] + dx[:, None]) * K + k[:, None]
    tl.store(out_ptr + chunk.to(tl.int64) * WIDTH + place, acc, mask=(dx < 3)[:, None] & (dy < 3)[None, :])


@triton.jit
def normalise(
    sums_ptr,  # of y and y^2
    mean_ptr,  # running statistics [C]: followed, or with STORED used
    var_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,  # scale, shift, mean, 1 / deviation [4, C]
    P,  # pixels in the statistics
    C: tl.constexpr,
    STORED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Turn sums into the scale and shift of a batch norm, and follow them with the running statistics."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    c = tl.arange(0, C)
    mean = tl.load(mean_ptr + c)
    var = tl.load(var_ptr + c)
    if not STORED:
        one, two = added(sums_ptr, c, C, FORWARD)
        old_mean, old_var = mean, var
        mean = one / P
        var = two / P - mean * mean
        var = tl.where(var < 0, 0.0, var)  # NaN stays
        tl.store(mean_ptr + c, old_mean + MOMENTUM * (mean - old_mean))
        tl.store(var_ptr + c, old_var + MOMENTUM * (var * (P / (P - 1.0)) - old_var))
    deviation = tl.rsqrt(var + EPSILON)
    scale = tl.load(weight_ptr + c) * deviation
    tl.store(out_ptr + c, scale)
    tl.store(out_ptr + C + c, tl.load(bias_ptr + c) - mean * scale)
    tl.store(out_ptr + 2 * C + c, mean)
    tl.store(out_ptr + 3 * C + c, deviation)


@triton.jit
def normalise_back(
    sums_ptr,  # of g and g a
    norm_ptr,  # what `normalise` wrote
    out_ptr,  # p, q, r and the gradients of weight and bias [5, C]
    P,  # pixels in the statistics; the sums are over all
    C: tl.constexpr,
    STORED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Turn sums into the gradient of a batch norm: for its input, p g + q a + r."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    c = tl.arange(0, C)
    scale = tl.load(norm_ptr + c)
    mean = tl.load(norm_ptr + 2 * C + c)
    deviation = tl.load(norm_ptr + 3 * C + c)
    total, with_a = added(sums_ptr, c, C, BACKWARD)
    for_weight = deviation * (with_a - mean * total)
    q = -scale * deviation * for_weight / P
    r = -scale * total / P - q * mean
    if STORED:
        q = tl.zeros([C], dtype=tl.float32)
        r = tl.zeros([C], dtype=tl.float32)
    tl.store(out_ptr + c, scale)
    tl.store(out_ptr + C + c, q)
    tl.store(out_ptr + 2 * C + c, r)
    tl.store(out_ptr + 3 * C + c, for_weight)
    tl.store(out_ptr + 4 * C + c, total)


@triton.jit
def finish(
    a_ptr,  # a convolution's output [P, N]
    norm_ptr,  # scale and shift [2, N]
    side_ptr,
    y_ptr,
    P,
    OH: tl.constexpr,
    OW: tl.constexpr,
    N: tl.constexpr,
    SIDE: tl.constexpr,  # as for `convolve`
    SC: tl.constexpr,
    SH: tl.constexpr,
    SW: tl.constexpr,
    RELU: tl.constexpr,
    BM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Write scale a + shift, plus a shortcut, or rectified."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    inside = (rows < P)[:, None]
    at = rows[:, None] * N + n[None, :]
    y = tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32)
    y = y * tl.load(norm_ptr + n)[None, :] + tl.load(norm_ptr + N + n)[None, :]
    if SIDE == 1:
        y += tl.load(side_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if SIDE == 2:
        image = rows // (OH * OW)
        oy = rows // OW % OH
        ox = rows % OW
        near = ((image * SH + 2 * oy) * SW + 2 * ox)[:, None] * SC + n[None, :]
        y += tl.load(side_ptr + near, mask=inside & (n < SC)[None, :], other=0.0).to(tl.float32)
    if RELU:
        y = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def differ(g_ptr, a_ptr, back_ptr, y_ptr, P, COUNTED, N: tl.constexpr, BM: tl.constexpr, EARLY: tl.constexpr):
    """Write p g + q a + r: the gradient of what a convolution wrote, from that of its batch norm's output.

    Beyond the COUNTED pixels, which are in the norm's statistics, it is p g.
    """
    if EARLY:
        tl.extra.cuda.gdc_wait()
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    inside = (rows < P)[:, None]
    at = rows[:, None] * N + n[None, :]
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32)
    p = tl.load(back_ptr + n)[None, :]
    q = tl.load(back_ptr + N + n)[None, :]
    y = p * g + tl.where((rows < COUNTED)[:, None], q * a + tl.load(back_ptr + 2 * N + n)[None, :], 0.0)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def receive(
    g_ptr,  # a gradient from outside [P, N]
    a_ptr,  # the convolution's output it belongs to
    norm_ptr,  # MASK: scale and shift [2, N]
    y_ptr,  # MASK: the gradient that its ReLU lets through
    sums_ptr,  # of y and y a
    P,
    N: tl.constexpr,
    MASK: tl.constexpr,
    BM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Add up a gradient for `normalise_back`, and pass it through a ReLU."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, N)
    inside = (rows < P)[:, None]
    at = rows[:, None] * N + n[None, :]
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if MASK:
        gate = a * tl.load(norm_ptr + n)[None, :] + tl.load(norm_ptr + N + n)[None, :]
        g = tl.where(gate > 0, g, 0.0)
        tl.store(y_ptr + at, g.to(y_ptr.dtype.element_ty), mask=inside)
    add(sums_ptr, n, tl.sum(g, axis=0), tl.sum(g * a, axis=0), N, BACKWARD)
