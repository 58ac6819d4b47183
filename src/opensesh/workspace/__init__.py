"""The files that a session changes: snapshots, patches, diffs, revert and unrevert.

:mod:`.snapshots` stores the files of a project, :mod:`.diffs` derives what a session changed, :mod:`.revert` goes back
and undoes that, and :mod:`.tidying` limits the disk space. All of it is synchronous and to be called from a thread,
except :meth:`Snapshots.begin <opensesh.workspace.snapshots.Snapshots.begin>`, which never waits.
"""
