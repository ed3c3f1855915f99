package object

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tenure-go/tenure/fence"
)

// MaxContent is the largest content of an object, in bytes: 64 MiB. A conditional PUT is one request, and content is held in memory
// while it is read and written.
const MaxContent = 64 << 20

const (
	magic   = "tenure-object1"
	present = "present"
	absent  = "absent" // deleted, or entered before anything was written: the mark is there, the object is not

	// maxHead bounds the first line: a claim of fence.MaxName bytes, each escaped as three, and what stands around it.
	maxHead = 2048
)

// frame is an object as it is stored.
type frame struct {
	claim   fence.Claim // of the last write, which is the mark
	nonce   string
	present bool
	sum     string // SHA-256 of the content, in hexadecimal
	content []byte // nil where only the head was read
}

func newFrame(claim fence.Claim, isPresent bool, content []byte) *frame {
	return &frame{claim: claim, present: isPresent, sum: sumOf(content), content: content}
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// newNonce draws what makes a write different from every other.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: the documentation of crypto/rand
	return hex.EncodeToString(b[:])
}

// encode is the object's bytes.
func (f *frame) encode() []byte {
	word := absent
	if f.present {
		word = present
	}
	head := strings.Join([]string{magic, f.claim.String(), f.nonce, word, f.sum}, " ") + "\n"
	body := make([]byte, 0, len(head)+len(f.content))
	return append(append(body, head...), f.content...)
}

// decode reads an object, or its beginning if whole is false. It returns a [*FormatError] for what encode did not write.
func decode(key string, text []byte, whole bool) (*frame, error) {
	bad := func(problem string) (*frame, error) { return nil, &FormatError{Key: key, Problem: problem} }
	end := bytes.IndexByte(text[:min(len(text), maxHead)], '\n')
	if end < 0 || !bytes.HasPrefix(text, []byte(magic+" ")) {
		return bad("it does not begin with " + magic)
	}
	content := text[end+1:]
	parts := strings.Split(string(text[:end]), " ")
	if len(parts) != 5 {
		return bad("its first line does not have five parts")
	}
	claim, err := fence.ParseClaim(parts[1])
	if err != nil {
		return bad("its first line has no claim: " + err.Error())
	}
	f := &frame{claim: claim, nonce: parts[2], sum: parts[4], present: parts[3] == present}
	if !isHex(f.nonce, 16) || !isHex(f.sum, sha256.Size) || !f.present && (parts[3] != absent || f.sum != sumOf(nil)) {
		return bad("its first line is damaged")
	}
	if !whole {
		return f, nil
	}
	if sumOf(content) != f.sum {
		return bad("its content does not have the checksum of its first line")
	}
	f.content = content
	return f, nil
}

func isHex(text string, bytes int) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == bytes && strings.ToLower(text) == text
}
