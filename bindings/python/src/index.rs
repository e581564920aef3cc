//! `a[...]`: NumPy's index as a selection of ours. What is not supported says so; nothing is guessed.
//!
//! An index becomes its entries, one for each thing between the commas; the entries become what is taken of every
//! axis, and the order in which the answer shows them. Lists and masks on neighbouring axes go together, as NumPy's
//! do: those axes are read as one.

use crate::array::warn_unguarded;
use crate::batch::{self, Shown};
use crate::error::{raise, unlocked};
use lowtide::format::Order;
use lowtide::{Axis, Error};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyIndexError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyList, PySlice, PyTuple};
use std::ops::Range;

/// What an index selects, and how the answer's axes are shown.
pub struct Selected {
    /// The axes of the array that are read as one.
    pub joined: Option<Range<usize>>,
    /// One entry for each axis, the joined ones as one.
    pub axes: Vec<Axis>,
    /// The answer's axes, in their order.
    pub shown: Vec<Shown>,
    /// Whether the answer is a single element, which NumPy gives as a scalar.
    pub scalar: bool,
}

impl Selected {
    /// The shape of the answer.
    pub fn shape(&self) -> Vec<usize> {
        let size = |shown: &Shown| match shown {
            Shown::New => vec![1],
            Shown::Kept(axis) => vec![self.axes[*axis].count()],
            Shown::Shaped(_, sizes) => sizes.clone(),
        };
        self.shown.iter().flat_map(size).collect()
    }

    /// The array with the axes joined that are to be, and what is taken of each.
    pub fn over(self, array: &lowtide::Array) -> PyResult<(lowtide::Array, Vec<Axis>)> {
        match self.joined {
            Some(join) => array.joined(join, self.axes).map_err(raise),
            None => Ok((array.clone(), self.axes)),
        }
    }

    /// `take` along one axis.
    pub fn places(
        given: &Bound<'_, PyAny>,
        along: usize,
        shape: &[usize],
        mode: Mode,
        scalar: bool,
    ) -> PyResult<Self> {
        let (list, sizes) = taken(given, along, shape[along], mode)?;
        let mut axes: Vec<Axis> = shape.iter().map(|&n| Axis::all(n)).collect();
        let mut shown: Vec<Shown> = (0..shape.len()).map(Shown::Kept).collect();
        axes[along] = Axis::list(list);
        let scalar = scalar && sizes.is_empty() && shape.len() == 1;
        shown[along] = Shown::Shaped(along, sizes);
        Ok(Self { joined: None, axes, shown, scalar })
    }

    /// `take` without an axis: elements, counted in C order.
    pub fn elements(
        given: &Bound<'_, PyAny>,
        shape: &[usize],
        order: Order,
        mode: Mode,
        scalar: bool,
    ) -> PyResult<Self> {
        let (mut list, sizes) = taken(given, 0, shape.iter().product(), mode)?;
        in_file_order(&mut list, shape, order);
        let scalar = scalar && sizes.is_empty();
        let (axes, shown) = (vec![Axis::list(list)], vec![Shown::Shaped(0, sizes)]);
        Ok(Self { joined: Some(0..shape.len()), axes, shown, scalar })
    }
}

/// Reads a selection into a fresh array.
pub fn fresh<'py>(
    py: Python<'py>,
    array: &lowtide::Array,
    descr: &Bound<'py, PyArrayDescr>,
    selected: Selected,
) -> PyResult<Bound<'py, PyAny>> {
    warn_unguarded(py, array)?;
    let (shown, scalar) = (selected.shown.clone(), selected.scalar);
    let (array, axes) = selected.over(array)?;
    let batch = unlocked(py, |interrupt| array.select(axes, interrupt))?;
    let answer = batch::shaped(py, batch, descr, &shown)?;
    if scalar { answer.get_item(PyTuple::empty(py)) } else { Ok(answer) }
}

/// What stands between two commas.
enum Entry<'py> {
    Ellipsis,
    New,
    Slice(Bound<'py, PySlice>),
    Integer(i128),
    /// An array of integers.
    List(Bound<'py, PyAny>),
    /// An array of truth values over one axis or several.
    Mask(Bound<'py, PyAny>, Vec<usize>),
}

impl<'py> Entry<'py> {
    fn read(given: &Bound<'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyEllipsis>() {
            return Ok(Self::Ellipsis);
        }
        if given.is_none() {
            return Ok(Self::New);
        }
        if let Ok(slice) = given.cast::<PySlice>() {
            return Ok(Self::Slice(slice.clone()));
        }
        if is_bool(given)? {
            return Err(PyNotImplementedError::new_err(
                "a single True or False as an index adds an axis in NumPy; that is not supported here\n\
                 hint: a mask has one entry for each row; a[None] adds an axis",
            ));
        }
        if !given.is_instance_of::<PyList>() {
            // Anything with __index__, which includes NumPy's integers and 0-d arrays of them.
            if let Ok(index) = given.call_method0("__index__") {
                return Ok(Self::Integer(index.extract().unwrap_or(i128::MAX)));
            }
        }
        let array = given.py().import("numpy")?.call_method1("asarray", (given,))?;
        let sizes = sizes(&array)?;
        match kind(&array)? {
            'b' => Ok(Self::Mask(array, sizes)),
            'i' | 'u' => Ok(Self::List(array)),
            // np.asarray([]) is an array of floats; NumPy takes an empty list (tuple, range) all the same.
            'f' if sizes.contains(&0) && !given.is_instance_of::<PyUntypedArray>() => {
                Ok(Self::List(array.call_method1("astype", ("int64",))?))
            }
            _ => Err(PyIndexError::new_err("arrays used as indices must be of integer (or boolean) type")),
        }
    }

    /// How many axes it is about.
    fn takes(&self) -> usize {
        match self {
            Self::Ellipsis | Self::New => 0,
            Self::Slice(_) | Self::Integer(_) | Self::List(_) => 1,
            Self::Mask(_, sizes) => sizes.len(),
        }
    }

    /// Whether NumPy counts it as an index array where there is one: integers go along with lists.
    fn is_advanced(&self) -> bool {
        matches!(self, Self::Integer(_) | Self::List(_) | Self::Mask(..))
    }
}

/// Reads an index for an array of `shape`, whose elements lie in this order in the file.
pub fn parse(key: &Bound<'_, PyAny>, shape: &[usize], order: Order) -> PyResult<Selected> {
    let entries: Vec<Entry<'_>> = match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|entry| Entry::read(&entry)).collect::<PyResult<_>>()?,
        Err(_) => vec![Entry::read(key)?],
    };
    let ellipses = entries.iter().filter(|entry| matches!(entry, Entry::Ellipsis)).count();
    if ellipses > 1 {
        return Err(PyIndexError::new_err("an index can only have a single ellipsis ('...')"));
    }
    let named: usize = entries.iter().map(Entry::takes).sum();
    let Some(unnamed) = shape.len().checked_sub(named) else {
        return Err(PyIndexError::new_err(format!(
            "too many indices for array: array is {}-dimensional, but {named} were indexed",
            shape.len()
        )));
    };
    let mut axes: Vec<Axis> = Vec::with_capacity(shape.len());
    let mut shown = Vec::with_capacity(shape.len());
    let mut lists = Vec::new(); // each with its axis
    for entry in &entries {
        let at = axes.len();
        let all = |n: usize| Axis::all(shape[n]);
        match entry {
            Entry::Ellipsis => {
                shown.extend((at..at + unnamed).map(Shown::Kept));
                axes.extend((at..at + unnamed).map(all));
            }
            Entry::New => shown.push(Shown::New),
            Entry::Slice(slice) => {
                let cut = slice.indices(isize::try_from(shape[at]).unwrap_or(isize::MAX))?;
                let start = usize::try_from(cut.start).unwrap_or(0); // -1 only where nothing is selected
                axes.push(Axis::Range { start, step: cut.step, count: cut.slicelength });
                shown.push(Shown::Kept(at));
            }
            Entry::Integer(index) => {
                axes.push(Axis::Range { start: inside(*index, at, shape[at])?, step: 1, count: 1 });
            }
            Entry::List(array) => {
                lists.push((at, array.clone()));
                axes.push(all(at));
            }
            Entry::Mask(array, sizes) => {
                check_mask(sizes, at, shape)?;
                let numbers: Vec<Bound<'_, PyAny>> = array.call_method0("nonzero")?.extract()?;
                lists.extend((at..).zip(numbers));
                axes.extend((at..at + sizes.len()).map(all));
            }
        }
    }
    if ellipses == 0 {
        let rest = axes.len()..shape.len();
        shown.extend(rest.clone().map(Shown::Kept));
        axes.extend(rest.map(|axis| Axis::all(shape[axis])));
    }
    let together = together(lists, shape, order)?;
    let scalar = ellipses == 0 && shown.is_empty() && together.is_none();
    let Some(Together { range, list, sizes }) = together else {
        return Ok(Selected { joined: None, axes, shown, scalar });
    };
    axes.splice(range.clone(), [list]);
    let dropped = range.len() - 1;
    for entry in &mut shown {
        if let Shown::Kept(axis) = entry
            && *axis >= range.end
        {
            *axis -= dropped;
        }
    }
    shown.insert(place(&entries, unnamed), Shown::Shaped(range.start, sizes));
    Ok(Selected { joined: (dropped > 0).then_some(range), axes, shown, scalar })
}

/// Lists as one list over the axes that they are on.
struct Together {
    range: Range<usize>,
    list: Axis,
    sizes: Vec<usize>,
}

/// Makes one list of several, which NumPy broadcasts; `None` where there is none.
fn together(
    lists: Vec<(usize, Bound<'_, PyAny>)>,
    shape: &[usize],
    order: Order,
) -> PyResult<Option<Together>> {
    let (Some((first, _)), Some((end, array))) = (lists.first(), lists.last()) else { return Ok(None) };
    let (py, range) = (array.py(), *first..*end + 1);
    if let [(axis, array)] = &*lists {
        let list = Axis::list(numbers(array, *axis, shape[*axis])?);
        return Ok(Some(Together { range, list, sizes: sizes(array)? }));
    }
    if range.len() != lists.len() {
        return Err(PyNotImplementedError::new_err(format!(
            "lists and masks go together only on axes that follow each other, not on axes {}\n\
             hint: take one after the other: a[rows][:, columns]",
            lists.iter().map(|(axis, _)| axis.to_string()).collect::<Vec<_>>().join(" and "),
        )));
    }
    let arrays: Vec<_> = lists.iter().map(|(_, array)| array).collect();
    let broadcast = py.import("numpy")?.getattr("broadcast_arrays")?.call1(PyTuple::new(py, &arrays)?);
    let broadcast: Vec<Bound<'_, PyAny>> = broadcast
        .map_err(|_| {
            let shapes: PyResult<Vec<String>> =
                arrays.iter().map(|a| Ok(a.getattr("shape")?.str()?.to_string())).collect();
            PyIndexError::new_err(format!(
                "shape mismatch: indexing arrays could not be broadcast together with shapes {}",
                shapes.unwrap_or_default().join(" ")
            ))
        })?
        .extract()?;
    let sizes = sizes(&broadcast[0])?;
    let mut joint = vec![0; sizes.iter().product()];
    // The axis that varies slowest in the file comes first, as the digits of a number do.
    let mut digits: Vec<_> = range.clone().zip(&broadcast).collect();
    if order == Order::Fortran {
        digits.reverse();
    }
    if !joint.is_empty() {
        for (axis, array) in digits {
            for (number, digit) in joint.iter_mut().zip(numbers(array, axis, shape[axis])?) {
                *number = *number * shape[axis] + digit; // an element of the array: its number fits
            }
        }
    }
    Ok(Some(Together { range, list: Axis::list(joint), sizes }))
}

/// Where the axes of the lists stand among the others: where the lists do, or first where something is between them.
fn place(entries: &[Entry<'_>], unnamed: usize) -> usize {
    let advanced = |entry: &Entry<'_>| entry.is_advanced();
    let (first, last) = (entries.iter().position(advanced), entries.iter().rposition(advanced));
    let (Some(first), Some(last)) = (first, last) else { return 0 };
    if !entries[first..=last].iter().all(advanced) {
        return 0;
    }
    let shows = |entry: &Entry<'_>| match entry {
        Entry::Ellipsis => unnamed,
        Entry::New | Entry::Slice(_) => 1,
        Entry::Integer(_) | Entry::List(_) | Entry::Mask(..) => 0,
    };
    entries[..first].iter().map(shows).sum()
}

/// True, False, and NumPy's: a scalar or an array without axes.
fn is_bool(entry: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(array) = entry.cast::<PyUntypedArray>() {
        return Ok(array.ndim() == 0 && array.dtype().kind() == b'b');
    }
    let numpy = entry.py().import("numpy")?;
    Ok(entry.is_instance_of::<PyBool>() || entry.is_instance(&numpy.getattr("bool_")?)?)
}

fn kind(array: &Bound<'_, PyAny>) -> PyResult<char> {
    array.getattr("dtype")?.getattr("kind")?.extract()
}

fn sizes(array: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    array.getattr("shape")?.extract()
}

/// An index as a row number: negative ones count from the end.
fn inside(index: i128, axis: usize, n: usize) -> PyResult<usize> {
    let from_start = if index < 0 { index + n as i128 } else { index };
    match usize::try_from(from_start) {
        Ok(row) if row < n => Ok(row),
        _ => Err(raise(Error::Index { index, axis, size: n as u64 })),
    }
}

/// That a mask of these sizes can select from `axis` on.
fn check_mask(sizes: &[usize], axis: usize, shape: &[usize]) -> PyResult<()> {
    for (i, (size, n)) in sizes.iter().zip(&shape[axis..]).enumerate() {
        // NumPy lets a mask of size 0 pass on any axis: it selects nothing.
        if size != n && *size > 0 {
            return Err(PyIndexError::new_err(format!(
                "boolean index did not match indexed array along axis {}; size of axis is {n} but size of \
                 corresponding boolean axis is {size}",
                axis + i
            )));
        }
    }
    Ok(())
}

/// An array of integers as places on an axis of size `n`.
fn numbers(array: &Bound<'_, PyAny>, axis: usize, n: usize) -> PyResult<Vec<usize>> {
    mapped(array, |index| inside(index, axis, n))
}

/// Every integer of an array, in C order, through a function.
fn mapped(array: &Bound<'_, PyAny>, to: impl Fn(i128) -> PyResult<usize>) -> PyResult<Vec<usize>> {
    use numpy::{PyArray1, PyArrayMethods};
    let numpy = array.py().import("numpy")?;
    let flat = array.call_method0("ravel")?;
    // A uint64 above 2^63 would come out negative: and mean another row.
    let wide = if flat.getattr("dtype")?.getattr("str")?.extract::<String>()?.ends_with("u8") {
        "uint64"
    } else {
        "int64"
    };
    let flat = numpy.call_method1("ascontiguousarray", (flat, wide))?;
    if wide == "uint64" {
        let flat = flat.cast_into::<PyArray1<u64>>()?.readonly();
        return flat.as_slice()?.iter().map(|&i| to(i.into())).collect();
    }
    let flat = flat.cast_into::<PyArray1<i64>>()?.readonly();
    flat.as_slice()?.iter().map(|&i| to(i.into())).collect()
}

/// What `take` does with a number outside its axis: np.take's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Raise,
    Wrap,
    Clip,
}

impl Mode {
    pub fn from_word(word: &str) -> PyResult<Self> {
        match word {
            "raise" => Ok(Self::Raise),
            "wrap" => Ok(Self::Wrap),
            "clip" => Ok(Self::Clip),
            _ => Err(pyo3::exceptions::PyValueError::new_err(format!(
                "mode={word:?} is not known\nhint: one of \"raise\", \"wrap\", \"clip\""
            ))),
        }
    }

    fn place(self, index: i128, axis: usize, n: usize) -> PyResult<usize> {
        let size = n as i128;
        let index = match self {
            Self::Raise => index,
            _ if n == 0 => {
                return Err(PyIndexError::new_err("cannot do a non-empty take from an empty axes."));
            }
            Self::Wrap => index.rem_euclid(size),
            Self::Clip => index.clamp(0, size - 1),
        };
        inside(index, axis, n)
    }
}

/// What `take` is given: the places of an axis of size `n`, and the shape in which they were given.
fn taken(given: &Bound<'_, PyAny>, axis: usize, n: usize, mode: Mode) -> PyResult<(Vec<usize>, Vec<usize>)> {
    let array = given.py().import("numpy")?.call_method1("asarray", (given,))?;
    let sizes = sizes(&array)?;
    match kind(&array)? {
        'b' => Err(PyNotImplementedError::new_err(
            "np.take reads True and False as 1 and 0, which is hardly meant\nhint: a[mask] takes the rows of a mask",
        )),
        'i' | 'u' => Ok((mapped(&array, |index| mode.place(index, axis, n))?, sizes)),
        // An empty list is an array of floats: only the list itself says that it is not meant so.
        'f' if sizes.contains(&0) && !given.is_instance_of::<PyUntypedArray>() => Ok((Vec::new(), sizes)),
        _ => Err(PyIndexError::new_err("arrays used as indices must be of integer (or boolean) type")),
    }
}

/// The number in file order of each element that is numbered in C order.
fn in_file_order(flat: &mut [usize], shape: &[usize], order: Order) {
    if order == Order::C {
        return;
    }
    for number in flat {
        let (mut rest, mut place) = (*number, 0);
        let mut stride: usize = shape.iter().product();
        for &n in shape.iter().rev() {
            stride /= n; // there is an element: no size is 0
            place += rest % n * stride;
            rest /= n;
        }
        *number = place;
    }
}
