package fence

import (
	"bytes"
	"encoding/hex"
)

// ID is a UUID: of an authority, a session or an acquisition. The zero value is no id.
// Ids made by one session rise, byte by byte, in the order in which they were made.
// An ID is a value; it is a name, never a right.
type ID [16]byte

// ParseID reads the canonical text form: 36 characters, lower case, as [ID.String] writes it.
// It returns an error matching [ErrInvalid] for anything else, the zero id included.
func ParseID(text string) (ID, error) {
	var id ID
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return ID{}, invalid("id", "want 36 characters as in 0190f3c1-7a2b-7c3d-8e4f-000000000001")
	}
	digits := text[:8] + text[9:13] + text[14:18] + text[19:23] + text[24:]
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil || id.String() != text {
		return ID{}, invalid("id", "want lower case hexadecimal digits")
	}
	if id.IsZero() {
		return ID{}, invalid("id", "the zero id names nothing")
	}
	return id, nil
}

// String is the canonical text form, 36 characters.
func (id ID) String() string {
	text := make([]byte, 36)
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text)
}

// IsZero reports whether id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// Less reports whether id was made before other, when one session made both.
func (id ID) Less(other ID) bool { return bytes.Compare(id[:], other[:]) < 0 }

// MarshalText writes the canonical form; the zero id is the empty text.
func (id ID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText reads what [ID.MarshalText] wrote, or returns an error matching [ErrInvalid].
func (id *ID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
