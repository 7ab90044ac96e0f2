/** Whether the file system has said so: that a folder may not be written to, for one. */
export const isFileError = (error: unknown): error is NodeJS.ErrnoException =>
  error instanceof Error && 'syscall' in error;
