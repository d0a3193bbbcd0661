"""A DLPack producer in which everything can be said, wrong things too, and which counts what its consumer does."""

import ctypes


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class LegacyManaged(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """The memory of a numpy array under other names. legacy: knows nothing of DLPack 1.x."""

    def __init__(self, array, *, device=(1, 0), version=(1, 0), read_only=False, legacy=False, dtype=None):
        self.array, self.device, self.legacy = array, device, legacy
        self.shape = array.shape
        self.asked = []
        code = {"f": 2, "i": 0, "u": 1}[array.dtype.kind]
        dtype = dtype or (code, array.itemsize * 8)
        self._sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        tensor = Tensor(array.ctypes.data, Device(*device), array.ndim, DType(*dtype, 1), self._sizes, self._strides, 0)
        self._managed = Managed(*version, None, None, int(read_only), tensor)
        self._legacy = LegacyManaged(tensor, None, None)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        self.asked.append(options)
        if self.legacy:
            if "max_version" in options:
                raise TypeError("unexpected keyword argument 'max_version'")
            return _new(ctypes.addressof(self._legacy), b"dltensor", None)
        return _new(ctypes.addressof(self._managed), b"dltensor_versioned", None)
