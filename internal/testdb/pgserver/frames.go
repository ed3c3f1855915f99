package pgserver

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"sync"
)

// frame is one message of the PostgreSQL protocol (version 3) as it stood on the wire.
type frame struct {
	kind byte   // the message's type; 0 for those without one: the first from the client, and the answer to a wish for TLS
	raw  []byte // all of it
}

const (
	maxFrame      = 64 << 20 // bytes; a longer message ends the connection
	maxStatements = 10_000   // prepared statements whose text is remembered for each connection; of more, nothing is known

	codeTLS    = 80877103 // SSLRequest
	codeGSS    = 80877104 // GSSENCRequest
	codeCancel = 80877102 // CancelRequest, the only message of its connection
)

// readFirst reads a message that has a length and a code, and no type.
func readFirst(r *bufio.Reader) (f frame, code uint32, err error) {
	raw, err := readBody(r, nil)
	if err != nil {
		return frame{}, 0, err
	}
	if len(raw) < 8 {
		return frame{}, 0, errFrame
	}
	return frame{raw: raw}, binary.BigEndian.Uint32(raw[4:]), nil
}

// readTyped reads a message that begins with its type.
func readTyped(r *bufio.Reader) (frame, error) {
	kind, err := r.ReadByte()
	if err != nil {
		return frame{}, err
	}
	raw, err := readBody(r, []byte{kind})
	return frame{kind: kind, raw: raw}, err
}

func readBody(r *bufio.Reader, raw []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < 4 || n > maxFrame {
		return nil, errFrame
	}
	raw = append(raw, length[:]...)
	start := len(raw)
	raw = append(raw, make([]byte, n-4)...)
	_, err := io.ReadFull(r, raw[start:])
	return raw, err
}

// body is what stands behind type and length.
func (f frame) body() []byte {
	if f.kind == 0 {
		return f.raw[4:]
	}
	return f.raw[5:]
}

// dialogue follows one connection in both directions: which statement a message runs, and which answer belongs to
// which request. The server ends each of its answers to a Sync or a simple query with ReadyForQuery.
type dialogue struct {
	mu         sync.Mutex
	statements map[string][]byte // text by name, as Parse gave it
	asked      int               // requests that ReadyForQuery answers; the start-up is the first
	answered   int
	negotiates bool // the next byte from the server is an answer to a wish for TLS
	losing     bool
	lostFrom   int // with losing: how many requests may still be answered
}

func newDialogue() *dialogue { return &dialogue{statements: map[string][]byte{}} }

// first notes a message without a type, and reports whether it was the start-up, after which all have one.
func (d *dialogue) first(code uint32) (started bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch code {
	case codeTLS, codeGSS:
		d.negotiates = true
		return false
	case codeCancel:
		return true
	default:
		d.asked++
		return true
	}
}

// negotiating reports, once, that the server's next byte is no message.
func (d *dialogue) negotiating() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.negotiates
	d.negotiates = false
	return was
}

// request notes a message of the client. If it runs a statement and wanted is in the statement's text or its
// arguments, all answers from this request's on are lost, and request reports true. A Parse runs nothing: a
// statement that was prepared earlier is known by its name when Bind asks for it.
func (d *dialogue) request(f frame, wanted []byte) (found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch f.kind {
	case 'P':
		name, rest := cString(f.body())
		text, _ := cString(rest)
		if _, known := d.statements[name]; known || len(d.statements) < maxStatements {
			d.statements[name] = []byte(text)
		}
	case 'B':
		_, rest := cString(f.body())
		name, _ := cString(rest)
		found = wanted != nil && (bytes.Contains(d.statements[name], wanted) || bytes.Contains(f.raw, wanted))
	case 'Q':
		found = wanted != nil && bytes.Contains(f.body(), wanted)
	}
	if found {
		d.losing, d.lostFrom = true, d.asked
	}
	if f.kind == 'Q' || f.kind == 'S' {
		d.asked++
	}
	return found
}

// reply notes a message of the server. It reports whether the message is lost, and whether it was the last of the
// answer that was to be lost: the server has then done all that was asked and said so.
func (d *dialogue) reply(f frame) (lost, last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lost = d.losing && d.answered >= d.lostFrom
	if f.kind == 'Z' {
		d.answered++
		last = lost
	}
	return lost, last
}

func cString(b []byte) (text string, rest []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}
