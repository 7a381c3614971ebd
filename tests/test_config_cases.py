"""The handed failure cases of client files (config-json, config-toml): MCP_LAZY_CASES names their folder.

A case gives byte ranges that an edit may replace; every other byte has to be the same, in order.  What its text asks
for beyond that has a test of its own below, with the number of the case in its name.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import MODULE, launcher
from test_config import Home, each_call, exact, leftovers, one_report, settings, strict_json, tomllib

FOLDER = os.environ.get("MCP_LAZY_CASES", "")
BLOCK = re.compile(r"^```json\n(.*?)^```", re.S | re.M)
LATER = "100", "107", "132"  # no block of ranges: only the tests of their own


def inputs():
    found = Path(FOLDER)
    return found / "inputs" if (found / "inputs").is_dir() else found


def blocks():
    """(number and index, block) of every case of these kinds."""
    if not FOLDER or not (inputs().parent / "LOG.md").is_file():
        return []
    numbers = re.findall(r"^\| (\d+) \| config-(?:json|toml) \|", (inputs().parent / "LOG.md").read_text("utf-8"), re.M)
    found = []
    for number in numbers:
        texts = BLOCK.findall((inputs() / (number + ".expect.md")).read_text("utf-8"))
        assert texts or number in LATER, "case %s has no block" % number
        found += [("%s-%d" % (number, index), json.loads(text)) for index, text in enumerate(texts)]
    return found


BLOCKS = blocks()


@pytest.fixture
def home(tmp_path):
    if not BLOCKS:
        pytest.skip("MCP_LAZY_CASES names no folder with LOG.md and the inputs of the cases")
    return Home(tmp_path)


def given(home, name):
    """A copy of an input, as a file in the home."""
    path = home.home / name
    shutil.copyfile(str(inputs() / name), str(path))
    path.chmod(0o600)
    return path


def pieces(raw, spans):
    """The bytes that have to stay: what lies before, between and behind the spans."""
    at, found = 0, []
    for start, end in spans:
        found.append(raw[at:start])
        at = end
    return found + [raw[at:]]


def fits(raw, spans, changed):
    """Is every byte outside the spans there, in this order?"""
    kept = pieces(raw, spans)
    at = len(kept[0])
    if not changed.startswith(kept[0]):
        return False
    for piece in kept[1:-1]:
        at = changed.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return len(changed) - at >= len(kept[-1]) and changed.endswith(kept[-1])


def read(client, raw):
    """The decoded document, or None where no judge is to be had."""
    return None if client == "codex" and tomllib is None else settings(client, raw)


def registration(client, document, server, project=None):
    if project is not None:
        document = document["projects"][project]
    return document["mcp_servers" if client == "codex" else "mcpServers"][server]


def check_edit(home, case, raw, path):
    """Wrapped: only the ranges differ, and the settings are those that are meant."""
    words = case["op"].split()[1:]
    client, server = case["client"], case["target"]
    report = home.config("wrap", client, server, "--file", path, *words)
    assert report["changedFields"] == ["args", "command"]
    changed = path.read_bytes()
    spans = sorted((one["from"], one["to"]) for one in case["may_change"])
    for one in case["may_change"]:
        assert raw[one["from"]:one["to"]].decode("utf-8") == one["now"]
    if "insert" in case or case["input"] == "122-noargs.toml":
        # 114 and 122 want the new line behind the command's; behaviour D10.4 wins: directly behind the header's.
        header = raw.index(b"\n", raw.index(b"[mcp_servers")) + 1
        spans = sorted({(header, header)} | {span for span in spans if span[0] != span[1]})
        assert changed[header:].startswith(b"args = [")
    assert fits(raw, spans, changed), changed
    before, after = read(client, raw), read(client, changed)
    if before is not None:
        project = words[1] if words else None
        old = registration(client, before, server, project)
        old.update(command=home.relay, args=[old["command"]] + old.get("args", []))
        assert exact(after) == exact(before)
    return client, server, words


@pytest.mark.parametrize("name, case", BLOCKS or [("none", None)], ids=[name for name, _ in BLOCKS] or ["none"])
def test_case(home, name, case):
    path = given(home, case["input"])
    raw = path.read_bytes()
    assert len(raw) == case["size"]
    if case["result"] == "refused":
        home.refused("wrap", case["client"], case["target"], "--file", path)
        return
    assert case["result"] == "edited" and case["undo"] == "unwrap gives back all %d bytes" % len(raw)
    client, server, words = check_edit(home, case, raw, path)
    home.config("unwrap", client, server, "--file", path, *words)
    assert path.read_bytes() == raw
    home.config("wrap", client, server, "--file", path, "--env", "MCP_LAZY_A=1", *words)
    home.config("unwrap", client, server, "--file", path, *words)
    assert path.read_bytes() == raw


# -------------------------------------------------------------------------------------------------- config-json

def test_case_077_a_second_writer_during_the_edit(home):
    """One try only (D8.1): a conflict is told, and theirs is the file.  The case would allow a second one."""
    path = given(home, "077-claude.json")
    theirs = path.read_bytes().replace(b"41", b"42")
    theirs = theirs.replace(b'"notes": {', b'"late": {"command": "l"},\n    "notes": {')

    def foreign(number, name, args):
        if name == "fsync" and not (home.path / "done").exists():
            (home.path / "done").write_text("")
            other = home.path / "other"
            other.write_bytes(theirs)
            os.replace(str(other), str(path))
    done = home.run(*home.words("wrap", "claude", "notes", ["--file", path]), before=lambda: each_call(foreign))
    assert (done.status, path.read_bytes()) == (1, theirs) and "changed during editing" in done.err
    home.config("wrap", "claude", "notes", "--file", path)
    assert b"42" in path.read_bytes() and b'"late"' in path.read_bytes()


@pytest.mark.parametrize("bits", [0o600, 0o640])
def test_case_078_the_mode_and_the_folder(home, bits):
    path = given(home, "078-mcp.json")
    path.chmod(bits)
    names = sorted(os.listdir(str(path.parent)))
    home.config("wrap", "cursor", "vault", "--file", path, "--state-dir", home.path / "state",
                before=lambda: os.umask(0o022))
    assert path.stat().st_mode & 0o7777 == bits and sorted(os.listdir(str(path.parent))) == names


def test_case_079_a_link_into_another_folder(home):
    target = home.path / "dots" / "claude.json"
    target.parent.mkdir()
    shutil.copyfile(str(inputs() / "079-dot-claude.json"), str(target))
    link = home.file("claude")
    link.symlink_to("../dots/claude.json")
    before = os.lstat(str(link)).st_ino
    home.config("wrap", "claude", "a")
    assert os.readlink(str(link)) == "../dots/claude.json" and os.lstat(str(link)).st_ino == before
    assert home.relay.encode() in target.read_bytes()


def chain(home):
    """(link, its last target), with a link in between in a folder that can not be written."""
    for name in ("store", "rw"):
        (home.path / name).mkdir()
    target = home.path / "rw" / "claude.json"
    shutil.copyfile(str(inputs() / "080-chain.json"), str(target))
    (home.path / "store" / "h.json").symlink_to("../rw/claude.json")
    home.file("claude").symlink_to("../store/h.json")
    (home.path / "store").chmod(0o555)
    return home.file("claude"), target


def test_case_080_a_chain_of_links(home):
    link, target = chain(home)
    home.config("wrap", "claude", "a")
    assert home.relay.encode() in target.read_bytes() and link.is_symlink()
    assert os.listdir(str(home.path / "store")) == ["h.json"]


def as_nobody(home):
    """Becomes an ordinary user, to whom this home belongs; for children of root."""
    def become():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    if os.getuid() != 0:
        return None
    for folder, names, files in os.walk(str(home.path)):
        for name in [folder] + [os.path.join(folder, one) for one in names + files]:
            os.chown(name, 65534, 65534, follow_symlinks=False)
    parent = home.path
    while parent != parent.parent and not parent.stat().st_mode & 0o001:
        if parent != home.path:
            parent.chmod(parent.stat().st_mode | 0o011)
        parent = parent.parent
    return become


def test_case_080_the_last_folder_can_not_be_written(home):
    """The folder is named, nothing is written in place instead."""
    _, target = chain(home)
    raw, facts = target.read_bytes(), target.stat()
    become = as_nobody(home)
    target.parent.chmod(0o555)
    done = home.run(*home.words("wrap", "claude", "a", ()), before=become)
    assert done.status == 1 and str(target.parent) in done.err and done.err.count("\n") == 1
    assert (target.read_bytes(), target.stat().st_ino) == (raw, facts.st_ino)
    assert not list(home.state.glob("*.json"))


def test_case_081_the_live_entry_alone(home):
    path = given(home, "081-mcp.json")
    raw = path.read_bytes()
    home.config("wrap", "cursor", "search", "--file", path)
    changed = path.read_bytes()
    for comment in (b'// "mcpServers": { "search": { "command": "old" } },', b'"args": ["old-search"]\n    }, */',
                    b"// live", b"// keep me",
                    b"/* and me */"):
        assert comment in changed
    path.write_bytes(raw)
    for client, warned in (("claude", True), ("cursor", False)):
        done = home.run(*home.words("status", client, "search", ["--file", path]))
        assert done.status == 0 and (str(path) in done.err) is warned
    assert path.read_bytes() == raw


@pytest.mark.parametrize("more", [[], ["--env", "MCP_LAZY_A=1"]])
def test_case_083_no_second_comma(home, more):
    path = given(home, "083-mcp.json")
    home.config("wrap", "cursor", "docs", "--file", path, *more)
    assert not re.search(rb",\s*,", path.read_bytes())
    assert json.loads(strict_json(path.read_bytes()))["mcpServers"]["docs"]["args"] == ["docs-mcp"]


def test_case_084_comments_stay_where_they_stood(home):
    path = given(home, "084-mcp.jsonc")
    home.config("wrap", "cursor", "db", "--file", path)
    text = path.read_text()
    (line,) = [one for one in text.splitlines() if '"command"' in one]
    assert line.endswith("// 8080 is the default port") and text.endswith("// end of db\n    }\n  }\n}\n")
    assert "// how it is started:\n      \"command\"" in text


@pytest.mark.parametrize("more", [[], ["--env", "MCP_LAZY_A=1"]])
def test_case_085_line_ends_and_the_mark(home, more):
    path = given(home, "085-mcp.json")
    home.config("wrap", "cursor", "win", "--file", path, *more)
    raw = path.read_bytes()
    assert not re.search(rb"[^\r]\n", raw) and raw.count(b"\xef\xbb\xbf") == 1 and raw.startswith(b"\xef\xbb\xbf")


@pytest.mark.parametrize("more", [[], ["--env", "MCP_LAZY_A=1"]])
def test_case_086_tabs(home, more):
    path = given(home, "086-mcp.json")
    home.config("wrap", "claude", "tabby", "--file", path, *more)
    assert b"  " not in path.read_bytes()


def test_case_090_projects(home):
    path = given(home, "090-claude.json")
    raw = path.read_bytes()
    for words, command in (([], b'"fs-user"'), (["--project", "D:/p/app"], b'"fs-fwd"'),
                           (["--project", "D:\\p\\app"], b'"fs-back"')):
        home.config("wrap", "claude", "fs", "--file", path, *words)
        start = raw.index(command)
        end = raw.index(b"]", start) + 1
        assert fits(raw, [(start, end)], path.read_bytes()) and path.read_bytes().count(home.relay.encode()) == 1
        home.config("unwrap", "claude", "fs", "--file", path, *words)
    for folder in ("/home/p/app/", "/home/p", "d:/p/app", "/home/p/other"):
        home.refused("wrap", "claude", "fs", "--file", path, "--project", folder)
    assert path.read_bytes() == raw


def test_case_092_names_are_keys(home):
    path = given(home, "092-mcp.json")
    raw = path.read_bytes()
    for server, command in (("-y", b'"dash"'), ("7", b'"seven"')):
        home.config("wrap", "cursor", server, "--file", path)
        start = raw.index(command)
        assert fits(raw, [(start, raw.index(b"]", start) + 1)], path.read_bytes())
        home.config("unwrap", "cursor", server, "--file", path)
    for server in ("io", "io.github.example", "io.github.example/notes", "github", ""):
        home.refused("wrap", "cursor", server, "--file", path, status=1 if server else 2)


def test_case_094_what_can_not_be_read_is_not_absent(home):
    folder, plain, closed = home.home / "folder", home.home / "plain", home.home / "closed.json"
    folder.mkdir()
    plain.write_text('{"mcpServers":{"a":{"command":"a"}}}')
    shutil.copyfile(str(plain), str(closed))
    become = as_nobody(home)
    closed.chmod(0)
    for path in (folder, plain / "below.json", closed):
        assert str(path) in home.refused("wrap", "claude", "a", "--file", path, before=become)


def test_case_096_the_place_of_the_error(home):
    path = given(home, "096-mcp.json")
    err = home.refused("wrap", "claude", "\u00e9", "--file", path)
    assert str(path) in err and re.search(r":5:7: |:4:23: |line 5,? column 7\b|line 4,? column 23\b", err)


@pytest.mark.parametrize("raw", [b"", b"\n \t\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\0" * 64, None])
def test_case_097_no_text_is_no_document(home, raw):
    path = home.home / "x.json"
    path.write_bytes((inputs() / "097-nul.json").read_bytes() if raw is None else raw)
    for action in ("wrap", "unwrap", "status"):
        assert str(path) in home.refused(action, "claude", "a", "--file", path)


def test_case_098_nothing_to_relay(home):
    path = given(home, "098-mcp.json")
    raw = path.read_bytes()
    for server in ("r1", "r2"):
        assert "no command" in home.refused("wrap", "cursor", server, "--file", path)
    home.config("wrap", "cursor", "s", "--file", path)
    servers = json.loads(path.read_bytes())["mcpServers"]
    assert not any({"url", "command"} <= set(one) for one in servers.values())
    assert servers["s"] == dict(json.loads(raw)["mcpServers"]["s"], command=home.relay,
                                args=["s-mcp", "--root", "${workspaceFolder}"])


def rewritten(raw):
    """What a client makes of its file: indented anew, sorted, with more in it."""
    found = json.loads(raw)
    found["numStartups"] = 9
    found["mcpServers"]["z"] = {"command": "z-mcp", "args": []}
    return json.dumps(found, indent=4, sort_keys=True)


def test_case_100_unwrap_in_the_file_as_it_is_now(home):
    path = given(home, "100-before.json")
    home.config("wrap", "claude", "k", "--file", path)
    text = rewritten(path.read_bytes())
    path.write_text(text)
    home.config("unwrap", "claude", "k", "--file", path)
    changed = path.read_bytes()
    found = json.loads(changed)
    assert found["mcpServers"] == {"k": {"command": "k-mcp", "args": ["-v"]}, "z": {"command": "z-mcp", "args": []}}
    assert found["numStartups"] == 9
    raw = text.encode()
    args, command = raw.index(b'[\n                "%s"' % b"k-mcp"), raw.index(json.dumps(home.relay).encode())
    assert fits(raw, [(args, raw.index(b"]", args) + 1), (command, command + len(json.dumps(home.relay)))], changed)


@pytest.mark.parametrize("now", ["gone", "something else"])
def test_case_100_unwrap_of_what_is_not_wrapped_any_more(home, now):
    """D5.1 wins over the third variant: something else in its place is left alone, and the record goes (see 205)."""
    path = given(home, "100-before.json")
    home.config("wrap", "claude", "k", "--file", path)
    path.write_text('{"mcpServers":{"j":{"command":"j"}%s}}'
                    % ("" if now == "gone" else ',"k":{"command":"new","args":["x"]}'))
    raw = path.read_bytes()
    if now == "gone":
        home.refused("unwrap", "claude", "k", "--file", path)
    else:
        assert home.config("unwrap", "claude", "k", "--file", path)["changedFields"] == []
    assert path.read_bytes() == raw


@pytest.mark.parametrize("more", [[], ["--env", "MCP_LAZY_A=1"]])
def test_case_102_one_line_stays_one_line(home, more):
    path = given(home, "102-mcp.json")
    home.config("wrap", "claude", "m", "--file", path, *more)
    assert b"\n" not in path.read_bytes()


def test_case_104_the_place_that_was_looked_at(home):
    for name, client in (("104-plugin.mcp.json", "claude"), ("104-vscode.json", "cursor")):
        assert "mcpServers" in home.refused("wrap", client, "my-server", "--file", given(home, name))
    path = given(home, "104-vscode.json")
    home.config("wrap", "vscode", "my-server", "--file", path)
    assert b"mcpServers" not in path.read_bytes()


def deep(name, depth):
    """What the case's program prints, checked against it where that is quick."""
    if name == "107-make-config.py":
        return b'{"history":' + b"[" * depth + b"]" * depth + b',"mcpServers":{"fs":{"command":"fs-mcp","args":[]}}}\n'
    return b"h = " + b"[" * depth + b"]" * depth + b'\n[mcp_servers.fs]\ncommand = "fs-mcp"\nargs = []\n'


@pytest.mark.parametrize("depth", [200, 900, 5000, 1000000])
@pytest.mark.parametrize("name, client", [("107-make-config.py", "claude"), ("107-make-config-toml.py", "codex")])
def test_case_107_deep_nesting(home, name, client, depth):
    """200 levels work; beyond the limit it is one line, in time, and nothing is written."""
    raw = deep(name, depth)
    if depth <= 900:
        assert raw == subprocess.run([sys.executable, str(inputs() / name), str(depth)], stdout=subprocess.PIPE,
                                     timeout=20).stdout
    path = home.put(client, raw)
    began = time.monotonic()
    done = home.run(*home.words("wrap", client, "fs", ()))
    took_s = time.monotonic() - began
    assert took_s < 5
    if done.status == 0:
        changed = path.read_bytes()
        assert changed.replace(json.dumps(home.relay).encode(), b'"fs-mcp"').replace(b'["fs-mcp"]', b"[]") == raw
        home.config("unwrap", client, "fs")
    else:
        assert (done.status, done.out) == (1, "") and depth > 200, done
        assert re.fullmatch(r"mcp-lazy: [^\n]{1,400}\n", done.err)
        assert not home.state.exists() or not list(home.state.glob("*.json"))
    assert path.read_bytes() == raw and leftovers(home, client) == []


@pytest.mark.parametrize("name, client", [("107-make-config.py", "claude"), ("107-make-config-toml.py", "codex")])
def test_case_107_as_a_process(home, name, client):
    """Its stack is that of a fresh interpreter."""
    path = home.put(client, deep(name, 200))
    argv = [sys.executable, "-I", "-S", "-c", launcher(), str(MODULE)]
    done = subprocess.run(argv + home.words("wrap", client, "fs", ()), env=home.env(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=30)
    assert done.returncode == 0, done.stderr
    assert one_report(done.stdout)["changedFields"] == ["args", "command"] and home.relay.encode() in path.read_bytes()


# -------------------------------------------------------------------------------------------------- config-toml

@pytest.mark.parametrize("rounds", [10])
def test_case_111_ten_rounds(home, rounds):
    path = given(home, "111-config.toml")
    raw = path.read_bytes()
    for _ in range(rounds):
        home.config("wrap", "codex", "w", "--file", path, "--env", "MCP_LAZY_A=1")
        assert not re.search(rb"[^\r]\n", path.read_bytes())
        home.config("unwrap", "codex", "w", "--file", path)
        assert path.read_bytes() == raw


@pytest.mark.parametrize("more", [[], ["--env", "MCP_LAZY_A=1"]])
def test_case_114_one_env_and_args_above_it(home, more):
    path = given(home, "114-config.toml")
    home.config("wrap", "codex", "fs", "--file", path, *more)
    text = path.read_text()
    assert len(re.findall(r"(?m)^\[.*env\]$|^env", text)) == 1
    assert text.index("args =") < text.index("[mcp_servers.fs.env]")
    assert text.endswith('[mcp_servers.fsx]\ncommand = "other"\n')
    assert text.startswith('[mcp_servers.fs]\nargs = ["fs-mcp"]\ncommand = '), "D10.4"


@pytest.mark.parametrize("server, command",
                         [("npm:@scope/pkg.name", b'"npx"'), ("io", b'"io-plain"'), ("caf\u00e9", b'"cafe"')])
def test_case_115_names_are_compared_decoded(home, server, command):
    path = given(home, "115-config.toml")
    raw = path.read_bytes()
    home.config("wrap", "codex", server, "--file", path)
    start = raw.rindex(command)
    header = raw.rindex(b"\n", 0, raw.rindex(b"\n", 0, start)) + 1  # the line before the command's
    body = raw.index(b"\n", header) + 1
    end = raw.index(b"\n", start)
    end = raw.index(b"\n", end + 1) if raw[end + 1:].startswith(b"args") else end
    assert fits(raw, [(body, end)], path.read_bytes()) and path.read_bytes().count(home.relay.encode()) == 1
    home.config("unwrap", "codex", server, "--file", path)
    home.refused("wrap", "codex", "github", "--file", path)
    assert path.read_bytes() == raw


@pytest.mark.parametrize("server", ["delta", "ep.si"])
def test_case_116_the_other_forms_beside_it(home, server):
    path = given(home, "116-under.toml")
    raw = path.read_bytes()
    home.config("wrap", "codex", server, "--file", path)
    changed = path.read_bytes()
    assert changed.count(b"[mcp_servers") == changed.count(home.relay.encode()) == 1
    assert changed.endswith(b"\n[other]\nkey = 1\n")
    home.config("unwrap", "codex", server, "--file", path)
    assert path.read_bytes() == raw


def test_case_117_inside_the_braces(home):
    path = given(home, "117-config.toml")
    raw = path.read_bytes()
    home.config("wrap", "codex", "b", "--file", path)
    changed = path.read_bytes()
    start, end = raw.index(b'"b-mcp"'), raw.index(b" }   # b")
    assert fits(raw, [(start, end)], changed) and changed.count(b"\n") == raw.count(b"\n")
    if tomllib is not None:
        assert tomllib.loads(changed.decode())["mcp_servers"]["b"] == {"command": home.relay, "args": ["b-mcp"]}
    home.config("unwrap", "codex", "b", "--file", path)
    assert path.read_bytes() == raw
    home.refused("wrap", "codex", "docs", "--file", path)


def test_case_119_the_other_server_too(home):
    path = given(home, "119-config.toml")
    raw = path.read_bytes()
    home.config("wrap", "codex", "y", "--file", path, "--env", "MCP_LAZY_A=1")
    changed = path.read_bytes()
    found = read("codex", changed)
    assert found is None or found["mcp_servers"]["y"] == {"command": home.relay, "args": ["y-mcp"],
                                                          "env": {"Y": "1", "MCP_LAZY_A": "1"}}
    header, env = raw.index(b"[mcp_servers.y]\n") + 16, raw.index(b'[mcp_servers.y.env]\n') + 20
    start = raw.index(b'"y-mcp"')
    assert fits(raw, [(header, header), (start, start + 7), (env, env)], changed)
    home.config("unwrap", "codex", "y", "--file", path)
    assert path.read_bytes() == raw


def test_case_121_marks_and_encodings(home):
    path = given(home, "121-config.toml")
    home.config("wrap", "codex", "b", "--file", path, "--env", "MCP_LAZY_A=1")
    raw = path.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf[") and raw.count(b"\xef\xbb\xbf") == 1 and not re.search(rb"[^\r]\n", raw)
    for name, part in (("121-utf16.toml", r"(?i)utf-?16"), ("121-midbom.toml", r":2:\d+: |line 2\b")):
        path = given(home, name)
        for action in ("wrap", "status", "unwrap"):
            assert re.search(part, home.refused(action, "codex", "b", "--file", path))


def test_case_123_both_url_and_command(home):
    path = given(home, "123-config.toml")
    err = home.refused("wrap", "codex", "mixed", "--file", path)
    assert re.search(r"\b8\b", err) and re.search(r"\b9\b", err), "which lines"
    assert "url" in home.refused("wrap", "codex", "remote", "--file", path)


@pytest.mark.parametrize("server", ["h", "x"])
def test_case_128_arrays_of_tables(home, server):
    for text in ((inputs() / "128-wrongtype.toml").read_text(), '[[mcp_servers.%s]]\ncommand = "x"\n' % server):
        path = home.put("codex", text)
        assert "array of tables" in home.refused("wrap", "codex", server)
        assert path.read_text() == text


@pytest.mark.parametrize("more", [[], ["--env", "MCP_LAZY_A=1"]])
def test_case_131_each_line_keeps_its_end(home, more):
    path = given(home, "131-config.toml")
    raw = path.read_bytes()
    home.config("wrap", "codex", "m", "--file", path, *more)
    lines, old = path.read_bytes().split(b"\n"), raw.split(b"\n")
    added = [line for line in lines if line.startswith(b"env")]
    rest = [line for line in lines if line not in added]
    assert len(added) == len(more) // 2 and not any(line.endswith(b"\r") for line in added), "as the header before it"
    assert [line.endswith(b"\r") for line in rest] == [line.endswith(b"\r") for line in old]
    path.write_bytes(raw.replace(b'"m"\r\n', b'"m"\r', 1))
    home.refused("wrap", "codex", "m", "--file", path)


@pytest.mark.parametrize(
    "name, client", [("132-latin1.toml", "codex"), ("132-overlong.toml", "codex"), ("132-surrogate.toml", "codex"),
                                          ("132-latin1.json", "cursor")])
def test_case_132_not_utf_8(home, name, client):
    path = given(home, name)
    for action in ("wrap", "status", "unwrap"):
        err = home.refused(action, client, "b", "--file", path)
        assert re.search(re.escape(str(path)) + r".*(:1:\d+: |line 1\b)", err)


# ----------------------------------------------------------------------------------------------- of other kinds

def test_case_205_an_old_session_writes_its_copy_back(home):
    path = given(home, "205-before.json")
    raw = path.read_bytes()
    done = home.run(*home.words("wrap", "claude", "x", ["--file", path]))
    assert re.search(r"(?m)^mcp-lazy: restart or reconnect .*", done.err)
    path.write_bytes(raw.replace(b'"n":1', b'"n":2'))
    done = home.run(*home.words("status", "claude", "x", ["--file", path]))
    assert one_report(done.out)["changed"] is True and "x: no longer wrapped" in done.err
    home.config("reapply", "claude", "x", "--file", path)
    assert json.loads(path.read_bytes())["n"] == 2 and home.relay.encode() in path.read_bytes()
    path.write_bytes(raw.replace(b'"n":1', b'"n":3'))
    assert home.config("unwrap", "claude", "x", "--file", path)["changedFields"] == []
    assert path.read_bytes() == raw.replace(b'"n":1', b'"n":3')


@pytest.mark.slow
def test_case_125_a_relative_command_and_folder(box):
    """The relay runs it where it is started itself: two folders, two servers, two recordings."""
    if not BLOCKS:
        pytest.skip("MCP_LAZY_CASES names no folder with LOG.md and the inputs of the cases")
    home = Home(box.path)
    path = given(home, "125-config.toml")
    home.config("wrap", "codex", "rel", "--file", path, "--relay", home.relay)
    found = settings("codex", path.read_bytes())["mcp_servers"]["rel"]
    assert found == {"command": home.relay, "args": ["./bin/srv", "mcp", "../data"], "cwd": "."}
    for name in ("one", "three"):
        tool = box.path / name / "bin" / "srv"
        tool.parent.mkdir(parents=True)
        fake = box.fake(tools=len(name))
        tool.write_text("#!/bin/sh\nexec %s \"$@\"\n" % " ".join("'%s'" % word for word in fake.argv))
        tool.chmod(0o755)
    for name in ("one", "three", "one"):
        relay = box.relay(found["args"], cwd=str(box.path / name))
        relay.handshake()
        assert len(relay.ask("tools/list")["tools"]) == len(name)
        relay.finish()
    assert len(box.recordings()) == 2
