"""Numbers of things and sizes of files, in words."""


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    Example:
        >>> count(1, "trial"), count(1200, "trial"), count(0, "directory", "directories")
        ('1 trial', '1,200 trials', '0 directories')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def file_size(size: int) -> str:
    """A number of bytes in the unit that gives it digits.

    Example:
        >>> file_size(812), file_size(20_480), file_size(4_932_355)
        ('812 bytes', '20 kB', '4.9 MB')
    """
    if size < 1000:
        return count(size, "byte")
    return f"{size / 1e3:.0f} kB" if size < 999_500 else f"{size / 1e6:.1f} MB"
