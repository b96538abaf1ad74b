"""Content types are read with their parameters, and Accept is answered as RFC 9110 says."""

import pytest

from adapters._media import MediaType, negotiate, parse_media_type, to_utf8
from gateway.errors import MalformedBody, NotAcceptable, UnsupportedMedia

OFFERS = ("application/json", "application/jsonlines", "text/csv", "application/x-npy")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("text/csv", MediaType("text/csv")),
        ("text/CSV", MediaType("text/csv")),
        (" Application/JSONLINES ", MediaType("application/jsonlines")),
        ("text/csv;label_size=0", MediaType("text/csv", {"label_size": "0"})),
        ("text/csv ; label_size=1", MediaType("text/csv", {"label_size": "1"})),
        ("text/csv;", MediaType("text/csv")),
        ("text/csv; Header=Absent; x", MediaType("text/csv", {"header": "Absent", "x": ""})),
        ('text/csv; a="x;,\\"y"; b=2', MediaType("text/csv", {"a": 'x;,"y', "b": "2"})),
        ('text/csv; a="never closed; b=2', MediaType("text/csv", {"a": "never closed; b=2"})),
        ("text/csv;=1;; b", MediaType("text/csv", {"b": ""})),
        ("text/csv; a=1; a=2", MediaType("text/csv", {"a": "1"})),
        ("application/vnd.amazon.eventstream", MediaType("application/vnd.amazon.eventstream")),
    ],
)
def test_content_type(header: str, expected: MediaType) -> None:
    """Case and spaces do not matter, and every parameter is kept."""
    assert expected == parse_media_type(header)


@pytest.mark.parametrize("header", ["", "csv", "text/csv, application/json", "text/", "text csv/x", "t\xe9xt/csv", ";"])
def test_no_content_type(header: str) -> None:
    """What is no single media type is refused in its own words."""
    with pytest.raises(UnsupportedMedia, match="is not a media type") as caught:
        parse_media_type(header)
    assert str(caught.value).isascii()


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "application/json"),
        ("", "application/json"),
        (" , ", "application/json"),
        ("*/*", "application/json"),
        ("*", "application/json"),
        ("*; q=.2", "application/json"),
        ("text/csv", "text/csv"),
        ("TEXT/Csv; charset=utf-8", "text/csv"),
        ("text/*", "text/csv"),
        ("application/*", "application/json"),
        ("text/csv, application/json", "text/csv"),
        ("application/json,text/csv", "application/json"),
        ("text/html, application/json", "application/json"),
        ("text/html, */*", "application/json"),
        ("*/*;q=0.8", "application/json"),
        ("*/*;q=0.1, text/csv;q=0.2", "text/csv"),
        ("application/json;q=0.1, text/csv;q=0.9", "text/csv"),
        ("application/json;q=0, */*", "application/jsonlines"),
        ("application/*;q=0, */*", "text/csv"),
        ("application/*;q=0, application/x-npy", "application/x-npy"),
        ("text/csv;q=5, application/json", "text/csv"),
        ("text/csv;q=oops", "text/csv"),
        ("text/csv;q=nan", "text/csv"),
        ("text/csv;q=0.5;verbose, application/json;q=0.6", "application/json"),
    ],
)
def test_accepted(accept: str | None, expected: str) -> None:
    """The best quality wins, then the order in the header, then the order of the offers."""
    assert expected == negotiate(accept, OFFERS).name


@pytest.mark.parametrize(
    ("accept", "parameters", "verbose"),
    [
        ("application/json; verbose=true", {"verbose": "true"}, True),
        ("application/json; verbose=True;q=0.5", {"verbose": "True"}, True),
        ("application/json;Verbose", {"verbose": ""}, True),
        ("application/json;verbose=false", {"verbose": "false"}, False),
        ("application/json", {}, False),
        ("*/*;verbose=1", {"verbose": "1"}, True),
    ],
)
def test_accept_parameters(accept: str, parameters: dict[str, str], verbose: bool) -> None:
    """The parameters of the range that won come with the choice, without its quality."""
    choice = negotiate(accept, OFFERS)
    assert (parameters, verbose) == (choice.parameters, choice.flag("verbose"))


@pytest.mark.parametrize(
    "accept", ["text/html", "foo", "text/csv;q=0", "*/*;q=0", "text/libsvm", "image/*", "text/csv;q=0, text/*;q=0.0"]
)
def test_not_acceptable(accept: str) -> None:
    """A refusal repeats what was asked and lists what there is."""
    with pytest.raises(NotAcceptable) as caught:
        negotiate(accept, OFFERS)
    assert accept[:8] in str(caught.value)
    assert "application/json, application/jsonlines, text/csv, application/x-npy" in str(caught.value)


def test_many_ranges() -> None:
    """A header of thousands of ranges is answered in linear time."""
    assert negotiate("a/b," * 20_000 + "text/csv", OFFERS).name == "text/csv"


def test_counts() -> None:
    """A parameter that counts is a small number, and nothing else."""
    assert parse_media_type("text/csv;label_size=3").count("label_size") == 3
    assert parse_media_type("text/csv").count("label_size") == 0
    assert parse_media_type("text/csv;label_size=").count("label_size") == 0
    for bad in ("-1", "x", "1.5", "9999999999", "\u0661"):
        with pytest.raises(MalformedBody, match="label_size is no count"):
            parse_media_type(f"text/csv;label_size={bad}").count("label_size")


@pytest.mark.parametrize("charset", ["utf-16", "UTF-16LE", "latin-1", "iso-8859-1", "windows-1252"])
def test_charset(charset: str) -> None:
    """A body in another encoding is turned into UTF-8."""
    assert "1,é".encode() == to_utf8("1,é".encode(charset), MediaType("text/csv", {"charset": charset}))


@pytest.mark.parametrize("parameters", [{}, {"charset": "utf-8"}, {"encoding": "utf8"}, {"charset": "zlib"}])
def test_charset_kept(parameters: dict[str, str]) -> None:
    """Every other name is taken for UTF-8, and the body stays as it is."""
    assert to_utf8(b"x\xff", MediaType("text/csv", parameters)) == b"x\xff"


def test_charset_wrong() -> None:
    """A body that is not in the encoding that it names is refused."""
    with pytest.raises(MalformedBody, match="not utf-16"):
        to_utf8(b"x", MediaType("text/csv", {"charset": "UTF-16"}))
