// Package bookinfo is a folder of scripts and manifests with tests around them: it owns what the
// sample services do and say on the wire. It has no code to import, and nothing here knows the mesh.
package bookinfo
