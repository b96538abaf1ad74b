"""The user classes that the recorded cases name, as files for models with `backend = "pyclass"`."""
# ruff: noqa: N801, N803, N806, PIE807
# The classes are called as the cases call them, and their arguments as Seldon's documents do.

import numpy as np
from seldon_core.flask_utils import SeldonMicroserviceException
from seldon_core.user_model import SeldonComponent, SeldonResponse


class echo:
    """returns X unchanged"""

    def predict(self, X, features_names):
        return X


class describe:
    """returns a dict saying what predict() was handed: type,names,meta + dtype/shape/ndarray | hex | value"""

    def predict(self, X, names, meta=None):
        d = {"type": type(X).__name__, "names": list(names), "meta": meta}
        if isinstance(X, np.ndarray):
            d.update(dtype=str(X.dtype), shape=list(X.shape), ndarray=X.tolist())
        elif isinstance(X, (bytes, bytearray)):
            d.update(hex=bytes(X).hex())
        else:
            d.update(value=X)
        return d


class ret:
    """returns the python value that strData names (see TABLE); any data payload -> int array [[1,2],[3,4]]"""

    def predict(self, X, features_names):
        if isinstance(X, np.ndarray):
            X = "ints2d"
        return {
            "ints2d": lambda: np.array([[1, 2], [3, 4]]),
            "float32": lambda: np.array([[0.1, 0.25]], dtype=np.float32),
            "ints1d": lambda: np.array([1, 2, 3]),
            "int3d": lambda: np.arange(8).reshape(2, 2, 2),
            "zero_d": lambda: np.array(7),
            "empty2d": lambda: np.zeros((0, 3)),
            "list1d": lambda: [1, 2, 3],
            "list2d": lambda: [[1.5, 2], [3, 4]],
            "list_ragged": lambda: [[1, 2], [3]],
            "list_str": lambda: ["a", "b"],
            "list_str2d": lambda: [["a", "b", "c"]],
            "list_dict": lambda: [{"k": 1}, {"k": 2}],
            "list_empty": lambda: [],
            "bool": lambda: np.array([[True, False]]),
            "strs": lambda: np.array(["x", "yy"]),
            "nan": lambda: np.array([[np.nan, np.inf]]),
            "dict": lambda: {"a": 1, "b": [1, 2.5, None]},
            "dict_np": lambda: {"a": np.array([1, 2])},
            "dict_npint": lambda: {"a": np.int64(3)},
            "bytes": lambda: b"\x00\x01\xff",
            "bytearray": lambda: bytearray(b"hi"),
            "str": lambda: "hello",
            "int": lambda: 5,
            "npfloat": lambda: np.float64(2.5),
            "none": lambda: None,
            "tuple": lambda: (1, 2),
            "set": lambda: {1, 2},
        }[X]()


class named:
    """class_names() -> cat,dog,fox; predict always a 2x3 float array"""

    def predict(self, X, features_names):
        return np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])

    def class_names(self):
        return ["cat", "dog", "fox"]


class named_attr:
    """class_names is a plain attribute [p,q]; predict returns [[1,2]]"""

    def __init__(self):
        self.class_names = ["p", "q"]

    def predict(self, X, features_names):
        return np.array([[1, 2]])


class names4:
    """echo whose class_names() returns a 4-tuple whatever the width"""

    def predict(self, X, names):
        return X

    def class_names(self):
        return ("a", "b", "c", "d")


class tagged:
    """echo via SeldonResponse with runtime tags/metrics, plus static tags() and metrics()"""

    def predict(self, X, features_names, meta=None):
        return SeldonResponse(
            data=X, tags={"run": "r", "both": "runtime"}, metrics=[{"type": "GAUGE", "key": "run_gauge", "value": 4}]
        )

    def tags(self):
        return {"stat": 1, "both": "static"}

    def metrics(self):
        return [
            {"type": "COUNTER", "key": "calls_c", "value": 1, "tags": {"colour": "red"}},
            {"type": "TIMER", "key": "lat_t", "value": 12.5},
        ]


class bad_metric:
    """echo with metrics() holding an unknown type"""

    def predict(self, X, features_names):
        return X

    def metrics(self):
        return [{"type": "WRONG", "key": "k", "value": 1}]


class raiser:
    """raises what strData asks for; 'count' returns how many times predict was entered"""

    n = 0

    def predict(self, X, features_names, meta=None):
        raiser.n += 1
        if X == "seldon":
            raise SeldonMicroserviceException("bad thing")
        if X == "seldon418":
            raise SeldonMicroserviceException("teapot", status_code=418, reason="MY_REASON", payload={"x": 1})
        if X == "value":
            raise ValueError("plain value error")
        if X == "key":
            return {}["missing"]
        if X == "type":
            raise TypeError("inner type error")
        if X == "reset":
            raiser.n = 0
            return "ok"
        if X == "count":
            return {"n": raiser.n}
        if X == "empty":
            raise RuntimeError()
        return X


class raw:
    """predict_raw: 'status' -> status 409; 'list', 'str' -> bare values; 'metrics' -> meta.metrics; else the keys"""

    def predict_raw(self, msg):
        s = msg.get("strData")
        if s == "status":
            return {"strData": "fail", "status": {"code": 409, "status": "FAILURE", "info": "custom", "reason": "R"}}
        if s == "list":
            return [1, 2]
        if s == "str":
            return "just text"
        if s == "metrics":
            return {"strData": "ok", "meta": {"metrics": [{"type": "COUNTER", "key": "raw_c", "value": 2}]}}
        return {"jsonData": {"got": sorted(msg.keys())}, "extra": True}


class component(SeldonComponent):
    """SeldonComponent subclass with only predict (echo)"""

    def predict(self, X, names, meta=None):
        return X


class nothing:
    """a class with no methods"""


class base(SeldonComponent):
    """bare SeldonComponent subclass"""


class one_arg:
    """predict(self, X) only"""

    def predict(self, X):
        return X


class kw:
    """predict(self, X, names, **kwargs) returning kwargs"""

    def predict(self, X, features_names, **kwargs):
        return {"kw": dict(kwargs)}


class inference_service:
    """the seed manual's class: returns the detection dict"""

    def predict(self, X, features_names):
        return {"dclasses": ["c1"], "dobjects": [[1.0, 2.0, 3.0, 4.0]], "dconfidences": [0.9]}


class unicode_out:
    """returns a str with CJK, <, &, U+2028"""

    def predict(self, X, names):
        return "\u4e2d\u6587 <b> & \u2028"


class order:
    """returns a dict with unsorted keys"""

    def predict(self, X, names):
        return {"z": 1, "a": 2, "m": {"y": 1, "b": 2}}


class mutate:
    """predict adds tags.added=1 to the meta dict it is given, then echoes"""

    def predict(self, X, names, meta=None):
        if meta is not None:
            meta.setdefault("tags", {})["added"] = 1
        return X


class params:
    """constructor kwargs + load counter reported by predict"""

    def __init__(self, **kw):
        self.kw, self.loaded = kw, 0

    def load(self):
        self.loaded += 1

    def predict(self, X, names):
        return {"kw": {k: [type(v).__name__, v] for k, v in self.kw.items()}, "loaded": self.loaded}


class load_attr:
    """load() sets loaded then raises AttributeError; predict reports loaded"""

    loaded = False

    def load(self):
        self.loaded = True
        self.no_such_thing.x()

    def predict(self, X, names):
        return {"loaded": self.loaded}


class graph:
    """transform_input x10, transform_output +1, route 1, aggregate mean, send_feedback recorder, and so on"""

    last = None

    def transform_input(self, X, names, meta=None):
        return X * 10 if isinstance(X, np.ndarray) else X

    def transform_output(self, X, names):
        return X + 1 if isinstance(X, np.ndarray) else X

    def feature_names(self):
        return ["fa", "fb"]

    def route(self, X, names):
        return 1

    def aggregate(self, Xs, names):
        return np.mean(np.array(Xs), axis=0)

    def send_feedback(self, features, feature_names, reward, truth, routing=None):
        graph.last = [np.asarray(features).tolist(), list(feature_names), reward, np.asarray(truth).tolist(), routing]
        return graph.last[0] or None

    def predict(self, X, names):
        return {"last": graph.last}

    def health_status(self):
        return np.array([1, 2])

    def init_metadata(self):
        return {
            "name": "g",
            "versions": ["v1"],
            "platform": "seldon",
            "inputs": [{"messagetype": "tensor", "schema": {"names": ["a"], "shape": [1]}}],
            "outputs": [{"messagetype": "strData"}],
            "custom": {"author": "me"},
        }


class bad_route:
    """route returns the str 'left'"""

    def route(self, X, names):
        return "left"


class np_route:
    """route returns np.int64(1)"""

    def route(self, X, names):
        return np.int64(1)


class fb_noroute:
    """send_feedback without a routing argument"""

    def send_feedback(self, features, feature_names, reward, truth):
        return None


class fb_str:
    """send_feedback returns a str"""

    def send_feedback(self, features, feature_names, reward, truth, routing=None):
        return "noted"


class bad_meta:
    """init_metadata with a non-string name; health_status raises"""

    def predict(self, X, names):
        return X

    def init_metadata(self):
        return {"name": 5}

    def health_status(self):
        raise RuntimeError("sick")
