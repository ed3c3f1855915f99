package pgserver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

func message(kind byte, body string) frame {
	var raw []byte
	if kind != 0 {
		raw = append(raw, kind)
	}
	raw = binary.BigEndian.AppendUint32(raw, uint32(4+len(body)))
	return frame{kind: kind, raw: append(raw, body...)}
}

func TestFramesAreReadWhole(t *testing.T) {
	first, second := message('Q', "SELECT 1\x00"), message('Z', "I")
	r := bufio.NewReader(bytes.NewReader(append(append([]byte{}, first.raw...), second.raw...)))
	for _, wanted := range []frame{first, second} {
		got, err := readTyped(r)
		if err != nil || got.kind != wanted.kind || !bytes.Equal(got.raw, wanted.raw) {
			t.Errorf("read %c %q, %v; want %c %q", got.kind, got.raw, err, wanted.kind, wanted.raw)
		}
	}
	if _, err := readTyped(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestFramesThatAreNone(t *testing.T) {
	cases := []struct {
		name string
		raw  []byte
		want error
	}{
		{"cut off in the body", message('Q', "SELECT").raw[:7], io.ErrUnexpectedEOF},
		{"cut off in the length", []byte{'Q', 0, 0}, io.ErrUnexpectedEOF},
		{"shorter than its length", []byte{'Q', 0, 0, 0, 3}, errFrame},
		{"too long", []byte{'Q', 0xff, 0, 0, 0}, errFrame},
	}
	for _, c := range cases {
		if _, err := readTyped(bufio.NewReader(bytes.NewReader(c.raw))); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, _, err := readFirst(bufio.NewReader(bytes.NewReader(message(0, "ab").raw))); !errors.Is(err, errFrame) {
		t.Errorf("a first message without a code: %v", err)
	}
}

// started is a dialogue whose start-up was answered.
func started(t *testing.T) *dialogue {
	t.Helper()
	d := newDialogue()
	if !d.first(196608) {
		t.Fatal("a start-up is not taken for one")
	}
	if lost, last := d.reply(message('Z', "I")); lost || last {
		t.Fatal("the start-up's answer is lost")
	}
	return d
}

// TestEarlierAnswersArrive has a pipeline of three requests, of which the second is to be lost.
func TestEarlierAnswersArrive(t *testing.T) {
	d := started(t)
	for _, text := range []string{"one", "two", "three"} {
		var wanted []byte
		if text != "three" {
			wanted = []byte("two")
		}
		if found := d.request(message('Q', text+"\x00"), wanted); found != (text == "two") {
			t.Errorf("%s: found %v", text, found)
		}
	}
	for i, step := range []struct {
		kind       byte
		lost, last bool
	}{{'C', false, false}, {'Z', false, false}, {'C', true, false}, {'Z', true, true}} {
		if lost, last := d.reply(message(step.kind, "x")); lost != step.lost || last != step.last {
			t.Errorf("answer %d (%c): lost %v, last %v", i, step.kind, lost, last)
		}
	}
}

// TestTheStatementOfABindIsKnown goes through the extended protocol: Parse runs nothing, Bind runs by name.
func TestTheStatementOfABindIsKnown(t *testing.T) {
	wanted := []byte("tenure.acquire")
	bind := func(name string) frame { return message('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00") }
	d := started(t)
	if d.request(message('P', "s1\x00SELECT tenure.acquire()\x00\x00\x00"), wanted) {
		t.Error("Parse is taken for a run")
	}
	d.request(message('P', "s2\x00SELECT tenure.release()\x00\x00\x00"), wanted)
	d.request(message('S', ""), wanted)
	if d.request(bind("s2"), wanted) {
		t.Error("the Bind of another statement matches")
	}
	d.request(message('S', ""), wanted)
	if !d.request(bind("s1"), wanted) {
		t.Error("the Bind of the statement does not match")
	}
	d.request(message('S', ""), nil)
	for i, lost := range []bool{false, false, true} {
		if got, last := d.reply(message('Z', "I")); got != lost || last != lost {
			t.Errorf("answer %d: lost %v, last %v", i, got, last)
		}
	}
}

func TestAWishForTLSIsNoStart(t *testing.T) {
	d := newDialogue()
	if d.first(codeTLS) || !d.negotiating() || d.negotiating() {
		t.Error("one wish for TLS is one byte of an answer, and no start")
	}
	if !d.first(codeCancel) || d.asked != 0 {
		t.Error("a cancellation is the last of its connection and is not answered")
	}
}
