// Package http is Tenure from another language over the wire: worker.py needs Python's standard library alone and a server (tenure serve). The tests here run it against a server on a real socket.
package http
