package file

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/tenure-go/tenure/fence"
)

// MaxNames is how many names may guard one file: the first to enter, and those that were allowed.
const MaxNames = 8

// slotSize is the length of one copy of the state. MaxNames names of the greatest length fit, each byte escaped as two.
const slotSize = 16 << 10

const (
	formatFamily = "tenure-fence-file/"
	format       = formatFamily + "1\n"
	slotHead     = len(format) + 2*sha256.Size + 1
	signAt       = 2 * slotSize // who has the lock, for error texts: not durable, and never relied on
	signLength   = 20
)

// state is what the side file keeps. It is valid from the moment it is durable, and describes an operation that may have come to nothing.
type state struct {
	Side   string  `json:"side"` // a random name of the side file: inodes are used again
	Seq    uint64  `json:"seq"`  // rises with every state that is written
	Marks  []mark  `json:"marks"`
	Before content `json:"before"`
	After  content `json:"after"`
	// Tail is the checksum of what an append puts between Before.Size and After.Size; empty for other operations.
	Tail string `json:"tail,omitempty"`
}

// mark is one name's high-water mark. A token of 0 was allowed and has not entered yet.
type mark struct {
	Authority fence.ID    `json:"authority"`
	Name      string      `json:"name"`
	Token     fence.Token `json:"token"`
}

// content tells one content of the file from another.
type content struct {
	Exists bool   `json:"exists"`
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size_bytes"`
}

// markOf returns the mark that a claim is to be held against, and where it is in the list; at the list's end if nothing has entered.
func (s *state) markOf(resource string, c fence.Claim) (fence.Mark, int) {
	for i, m := range s.Marks {
		if m.Authority == c.Authority && m.Name == c.Name {
			return fence.Mark{Resource: resource, Authority: m.Authority, Name: m.Name, Token: m.Token}, i
		}
	}
	if len(s.Marks) == 0 {
		return fence.Mark{Resource: resource}, 0
	}
	first := s.Marks[0]
	return fence.Mark{Resource: resource, Authority: first.Authority, Name: first.Name, Token: first.Token}, 0
}

// encode returns one copy of the state: a line that says what it is, a checksum of the rest, the state as JSON, and blanks.
func (s *state) encode() ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, err
	}
	room := slotSize - slotHead
	if text.Len() >= room {
		return nil, fmt.Errorf("the state takes %d bytes, and %d is the most", text.Len(), room-1)
	}
	rest := append(text.Bytes(), bytes.Repeat([]byte{' '}, room-text.Len())...)
	rest[room-1] = '\n'
	sum := sha256.Sum256(rest)
	slot := append(make([]byte, 0, slotSize), format...)
	slot = append(slot, hex.EncodeToString(sum[:])...)
	slot = append(slot, '\n')
	return append(slot, rest...), nil
}

// decode reads one copy. It reports false if that is not whole.
func decode(slot []byte) (state, bool) {
	var s state
	if len(slot) != slotSize || !bytes.HasPrefix(slot, []byte(format)) {
		return s, false
	}
	sum := sha256.Sum256(slot[slotHead:])
	if string(slot[len(format):slotHead]) != hex.EncodeToString(sum[:])+"\n" {
		return s, false
	}
	dec := json.NewDecoder(bytes.NewReader(slot[slotHead:]))
	dec.DisallowUnknownFields()
	return s, dec.Decode(&s) == nil && s.Seq > 0 && len(s.Marks) <= MaxNames
}

// reading is what the side file says.
type reading struct {
	state
	raw   []byte // the copy that it was read from
	other int    // the copy that has to be made equal, or -1
}

// readState reads both copies. It reports false if there is no state yet: a side file that ends before its second copy was never finished,
// and nothing was written under it.
func readState(side *os.File) (reading, bool, error) {
	raw, err := io.ReadAll(io.NewSectionReader(side, 0, 2*slotSize))
	if err != nil {
		return reading{}, false, err
	}
	one, two := raw[:min(len(raw), slotSize)], raw[min(len(raw), slotSize):]
	first, isFirst := decode(one)
	second, isSecond := decode(two)
	switch {
	case bytes.HasPrefix(raw, []byte(formatFamily)) && !bytes.HasPrefix(raw, []byte(format)):
		return reading{}, false, fault(ErrNewer, "nothing was changed; use the version that wrote it, or a later one", nil)
	case isFirst && isSecond && first.Seq != second.Seq+1 && !bytes.Equal(one, two):
		return reading{}, false, fault(ErrCorrupt, fmt.Sprintf("its copies are of operations %d and %d, which no crash leaves; nothing was changed; %s",
			first.Seq, second.Seq, repair), nil)
	case isFirst && bytes.Equal(one, two):
		return reading{state: first, raw: one, other: -1}, true, nil
	case isFirst:
		return reading{state: first, raw: one, other: 1}, true, nil
	case isSecond:
		return reading{state: second, raw: two}, true, nil
	case len(raw) <= slotSize:
		return reading{}, false, nil
	}
	return reading{}, false, fault(ErrCorrupt, "neither copy has its checksum, so it is not known which tokens were accepted; nothing was changed; "+repair, nil)
}

const repair = "make sure that no former holder runs, remove the side file, and open the file with Adopt"
