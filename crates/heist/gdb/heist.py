# Commands of gdb for the goroutines of a program that uses heist.
#
#   source heist.py
#   heist goroutines            all goroutines; `heist goroutines TEXT` those whose line has TEXT
#   heist goroutine ID          selects a goroutine: `up`, `down`, `info locals` work on its frames
#   heist goroutine ID bt       selects it and shows its stack
#   heist goroutine all bt      shows the stacks of all goroutines
#   heist goroutine none        back to the stack of the thread
#   heist core FILE             as `generate-core-file FILE`, with the stacks of goroutines
#
# ID is the number of a goroutine, its name, or the address of its record, where two runtimes use
# the number.
#
# Nothing is written to the process, so all of it works on a core file too. The records are found
# through a table that every program with heist has in its section `heist_debug`. The frames of a
# goroutine that has no thread are shown as if the selected thread had called them: an unwinder
# continues from the frame of the thread at the registers that the goroutine has left on its stack.

import re
import struct

import gdb
import gdb.unwinder

SECTION = "heist_debug"
MAGIC = b"heist-gs"
FACT = struct.Struct("<24sQ")
# The parts of a status word: see `heist_core::status`.
STATUS_MASK = 0x7F
# The mark of a leaked goroutine, in the byte of the wait reason.
LEAKED = 0x80
# How far below its link to the scheduler the first function of a goroutine has its frame.
FIRST_FRAME_BYTES = 16


def inferior():
    return gdb.selected_inferior()


def read(address, length):
    return bytes(inferior().read_memory(address, length))


def word(address):
    return struct.unpack("<Q", read(address, 8))[0]


def text(address):
    """The text that a Rust `&str` at this address refers to."""
    start, length = struct.unpack("<QQ", read(address, 16))
    if start == 0 or length > 4096:
        return None
    return read(start, length).decode("utf-8", "replace") if length else ""


def tables():
    """The tables of the program and of its libraries."""
    found = []
    files = gdb.execute("info files", to_string=True)
    for start, end in re.findall(r"(0x[0-9a-f]+) - (0x[0-9a-f]+) is %s\b" % SECTION, files):
        start, end = int(start, 16), int(end, 16)
        data = read(start, end - start)
        at = data.find(MAGIC)
        while at >= 0:
            found.append(Table(data[at:]))
            at = data.find(MAGIC, at + len(MAGIC))
    if not found:
        raise gdb.GdbError("no heist in this program, or the program file is not known to gdb")
    return found


class Table:
    """What heist says about its records."""

    def __init__(self, data):
        (n,) = struct.unpack_from("<Q", data, len(MAGIC))
        self.facts = {}
        for i in range(n):
            name, value = FACT.unpack_from(data, len(MAGIC) + 8 + i * FACT.size)
            self.facts[name.rstrip(b"\0").decode()] = value

    def __getattr__(self, name):
        try:
            return self.facts[name]
        except KeyError:
            raise gdb.GdbError("this version of heist does not describe `%s`" % name)

    def names(self, what):
        first, n = self.facts[what], self.facts["n_" + what]
        return [text(first + 16 * i) for i in range(n)]

    def goroutines(self):
        """All goroutines that are alive."""
        statuses, reasons = self.names("statuses"), self.names("reasons")
        slab = word(self.slabs)
        while slab:
            n = word(slab + self.slab_carved)
            records = read(slab + self.slab_first, n * self.g_bytes)
            for i in range(n):
                at = i * self.g_bytes
                g = Goroutine(self, slab + self.slab_first + at, records[at : at + self.g_bytes])
                if g.is_alive():
                    g.name_state(statuses, reasons)
                    yield g
            slab = word(slab + self.slab_next)


class Goroutine:
    """A record, as it was when it was read."""

    def __init__(self, table, address, record):
        self.table, self.address, self.record = table, address, record
        self.status = self.byte(table.g_status) & STATUS_MASK
        self.flags = struct.unpack_from("<H", record, table.g_flags)[0]
        self.id = self.word(table.g_id)
        self.runtime = self.word(table.g_sched)
        self.link = self.word(table.g_link)
        self.has_stack = self.byte(table.g_started) & 1 != 0 and self.link != 0
        self.state = "?"

    def word(self, at):
        return struct.unpack_from("<Q", self.record, at)[0]

    def byte(self, at):
        return self.record[at]

    def is_alive(self):
        return self.status != self.table.dead and self.flags & self.table.unborn == 0

    def name_state(self, statuses, reasons):
        table = self.table
        self.state = statuses[self.status] if self.status < len(statuses) else "?"
        if self.flags & table.abandoned:
            self.state = "abandoned: stack overflow"
        elif self.status == table.waiting:
            reason = self.byte(table.g_wait_reason)
            index = reason & ~LEAKED
            self.state = reasons[index] if index < len(reasons) else "waiting"
            if reason & LEAKED:
                self.state += " (leaked)"
        if self.flags & table.locked:
            self.state += ", locked to thread"

    def name(self):
        extras = self.word(self.table.g_extras)
        try:
            return text(extras + self.table.extras_name) if extras else None
        except gdb.MemoryError:
            return None

    def spawn_site(self):
        site, table = self.word(self.table.g_spawn_site), self.table
        if site == 0 or table.site_file == table.unknown:
            return None
        try:
            line, column = (
                struct.unpack("<I", read(site + at, 4))[0]
                for at in (table.site_line, table.site_column)
            )
            return "%s:%d:%d" % (text(site + table.site_file), line, column)
        except gdb.MemoryError:
            return None

    def line(self):
        name, site, parent = self.name(), self.spawn_site(), self.word(self.table.g_parent)
        line = "%6d  [%s]" % (self.id, self.state)
        if name:
            line += '  "%s"' % name
        if site:
            line += "  spawned at %s" % site
        if parent:
            line += " by goroutine %d" % parent
        return line + "  record 0x%x" % self.address

    def thread_pointer(self):
        """The thread pointer of the thread that it is on, None if it has left its thread."""
        table = self.table
        if self.status == table.running:
            return word(self.link + table.link_thread)
        m = self.word(table.g_bound_m)
        # Preempted by a signal, whose handler sleeps on the thread.
        if m and self.status == table.runnable and word(m + table.m_current) == self.address:
            return word(m + table.m_thread)
        return None

    def registers(self):
        """The registers that it has left on its stack, by gdb's names."""
        table = self.table
        sp = word(self.address + table.g_coroutine + 8 * word(table.sp_word))
        arch = Arch.current()
        return {
            "pc": word(sp + table.saved_pc),
            "sp": sp + table.saved_bytes,
            arch.fp: word(sp + table.saved_fp),
            arch.base: word(sp + table.saved_base),
        }


class Arch:
    """The names of the registers that a switch of stacks saves, and of the thread pointer."""

    def __init__(self, fp, base, thread_pointer):
        self.fp, self.base, self.thread_pointer = fp, base, thread_pointer

    @staticmethod
    def current():
        name = inferior().architecture().name()
        if "x86-64" in name:
            return Arch("rbp", "rbx", "fs_base")
        if "aarch64" in name:
            return Arch("x29", "x19", "tpidr")
        raise gdb.GdbError("no goroutines on %s" % name)


def number(value):
    return int(value) & 0xFFFFFFFFFFFFFFFF


class Frames(gdb.unwinder.Unwinder):
    """Continues from the frame of a thread at the registers of a goroutine."""

    def __init__(self):
        super().__init__("heist")
        self.forget()

    def forget(self):
        self.at, self.registers, self.link = None, None, 0

    def show(self, goroutine):
        """From now on the selected thread seems to have called the goroutine."""
        self.forget()
        gdb.invalidate_cached_frames()
        newest = gdb.newest_frame()
        self.at = (newest.pc(), number(newest.read_register("sp")))
        self.registers, self.link = goroutine.registers(), goroutine.link
        gdb.invalidate_cached_frames()

    def __call__(self, pending):
        if self.at is None:
            return None
        pc, sp = number(pending.read_register("pc")), number(pending.read_register("sp"))
        if (pc, sp) == self.at:
            return self.answer(pending, self.registers["sp"] - 16, pc, self.registers)
        # The first function of a goroutine, which has its argument on the stack. What is behind it
        # is whatever resumed the goroutine last.
        if self.link - FIRST_FRAME_BYTES <= sp <= self.link:
            return self.answer(pending, sp, pc, {"pc": 0, "sp": sp + FIRST_FRAME_BYTES})
        return None

    @staticmethod
    def answer(pending, sp, pc, registers):
        # The stack of a goroutine can be below or above that of the thread, and gdb does not
        # follow callers that seem to be on the wrong side. So the identity of a frame is made up.
        word_type = pending.architecture().integer_type(64, False)
        address = lambda value: gdb.Value(value).cast(word_type)
        info = pending.create_unwind_info(FrameId(address(sp), address(pc)))
        for name, value in registers.items():
            like = pending.read_register(name).type
            info.add_saved_register(name, gdb.Value(value).cast(word_type).cast(like))
        return info


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


FRAMES = Frames()
gdb.unwinder.register_unwinder(None, FRAMES, replace=True)


def back_to_thread(_event=None):
    if FRAMES.at is not None:
        FRAMES.forget()
        gdb.invalidate_cached_frames()


gdb.events.cont.connect(back_to_thread)
gdb.events.exited.connect(back_to_thread)


def thread_with(pointer):
    """The thread with this thread pointer."""
    register = Arch.current().thread_pointer
    before = gdb.selected_thread()
    try:
        for thread in inferior().threads():
            thread.switch()
            try:
                if number(gdb.newest_frame().read_register(register)) == pointer:
                    return thread
            except (gdb.error, ValueError):
                continue
    finally:
        before.switch()
    return None


def select(goroutine):
    """Selects the innermost frame of a goroutine."""
    back_to_thread()
    pointer = goroutine.thread_pointer()
    if pointer is not None:
        thread = thread_with(pointer)
        if thread is None:
            raise gdb.GdbError("goroutine %d runs on a thread that gdb does not know" % goroutine.id)
        thread.switch()
        frame = gdb.newest_frame()
    elif not goroutine.has_stack:
        raise gdb.GdbError("goroutine %d has no stack: it has not started, or is a task between "
                           "two polls" % goroutine.id)
    else:
        FRAMES.show(goroutine)
        frame = gdb.newest_frame()
        wanted = goroutine.registers()["pc"]
        while frame is not None and frame.pc() != wanted:
            frame = frame.older()
        if frame is None:
            back_to_thread()
            raise gdb.GdbError("the stack of goroutine %d cannot be read" % goroutine.id)
    frame.select()
    return frame


def describe(frame):
    line = "#%-3d 0x%x in %s" % (frame.level(), frame.pc(), frame.name() or "??")
    place = frame.find_sal()
    if place.symtab is not None:
        line += " at %s:%d" % (place.symtab.filename, place.line)
    return line


def backtrace(goroutine):
    print("goroutine %d [%s]:" % (goroutine.id, goroutine.state))
    try:
        frame = select(goroutine)
    except gdb.GdbError as error:
        print(str(error))
        return
    while frame is not None and frame.pc() != 0:
        print(describe(frame))
        frame = frame.older()


def all_goroutines():
    if gdb.selected_thread() is None:
        raise gdb.GdbError("no process and no core file")
    found = [g for table in tables() for g in table.goroutines()]
    return sorted(found, key=lambda g: (g.runtime, g.id))


def the_goroutine(name):
    try:
        wanted = int(name, 0)
        found = [g for g in all_goroutines() if wanted in (g.id, g.address)]
    except ValueError:
        found = [g for g in all_goroutines() if g.name() == name]
    if not found:
        raise gdb.GdbError("there is no goroutine %s" % name)
    if len(found) > 1:
        lines = "\n".join(g.line() for g in found)
        raise gdb.GdbError("there are several goroutines %s; name a record:\n%s" % (name, lines))
    return found[0]


class Heist(gdb.Command):
    """Commands for the goroutines of heist."""

    def __init__(self):
        super().__init__("heist", gdb.COMMAND_STACK, gdb.COMPLETE_NONE, True)


class ListCommand(gdb.Command):
    """heist goroutines [TEXT]: all goroutines, or those whose line has TEXT."""

    def __init__(self):
        super().__init__("heist goroutines", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        goroutines = all_goroutines()
        runtimes = {g.runtime for g in goroutines}
        shown = None
        for g in goroutines:
            if len(runtimes) > 1 and g.runtime != shown:
                shown = g.runtime
                print("runtime 0x%x:" % shown)
            line = g.line()
            if argument in line:
                print(line)


class SelectCommand(gdb.Command):
    """heist goroutine ID|all|none [bt]: selects a goroutine, or shows its stack."""

    def __init__(self):
        super().__init__("heist goroutine", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if not words or words[1:] not in ([], ["bt"]):
            raise gdb.GdbError("usage: heist goroutine ID|all|none [bt]")
        shows_stack = len(words) == 2
        if words[0] == "none":
            back_to_thread()
        elif words[0] == "all":
            thread = gdb.selected_thread()
            for g in all_goroutines():
                backtrace(g)
                print("")
            back_to_thread()
            thread.switch()
        elif shows_stack:
            backtrace(the_goroutine(words[0]))
        else:
            print(describe(select(the_goroutine(words[0]))))


class CoreCommand(gdb.Command):
    """heist core FILE: writes a core file that has the stacks of goroutines.

gdb's own command leaves out what follows an unreadable page in the same mapping, and the stacks of
goroutines have such pages between them."""

    CHUNK, PAGE = 1 << 20, 4096
    LOAD = 1

    def __init__(self):
        super().__init__("heist core", gdb.COMMAND_DATA, gdb.COMPLETE_FILENAME)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if len(words) != 1:
            raise gdb.GdbError("usage: heist core FILE")
        gdb.execute("generate-core-file " + words[0], to_string=True)
        with open(words[0], "r+b") as core:
            added = sum(self.complete(core, *segment) for segment in self.segments(core))
        print("saved %s, with %d KiB that gdb had left out" % (words[0], added >> 10))

    @classmethod
    def segments(cls, core):
        """The memory in a core file: its place in the file, its address, its length."""
        head = core.read(64)
        (table,) = struct.unpack_from("<Q", head, 32)
        size, n = struct.unpack_from("<HH", head, 54)
        core.seek(table)
        rows = core.read(size * n)
        found = []
        for i in range(n):
            kind, _, at, address, _, length = struct.unpack_from("<IIQQQQ", rows, i * size)
            if kind == cls.LOAD and length:
                found.append((at, address, length))
        return found

    @classmethod
    def complete(cls, core, at, address, length):
        """Adds what gdb has left out of one segment, and says how much that is."""
        added, left_out = 0, False
        for start in range(0, length, cls.CHUNK):
            some = min(cls.CHUNK, length - start)
            if not left_out:
                try:
                    read(address + start, some)
                    continue
                except gdb.MemoryError:
                    left_out = True
            for page in range(start, start + some, cls.PAGE):
                try:
                    data = read(address + page, min(cls.PAGE, length - page))
                except gdb.MemoryError:
                    continue
                if any(data):
                    core.seek(at + page)
                    core.write(data)
                    added += len(data)
        return added


Heist()
CoreCommand()
ListCommand()
SelectCommand()
